#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/checkpoint/manifest.h"
#include "tutti/data/dataset.h"
#include "tutti/graph/graph.h"
#include "tutti/train/run_config.h"

namespace tutti {

// What a training is, beside the values of its variables, as a checkpoint keeps it.
struct RunFacts {
  checkpoint::Facts order = {};  // what the order of sums depends on
  checkpoint::Facts data = {};
  int64_t seed = 0;
  std::string fingerprint = {};  // of the graph
};

// Nothing where there is no model_dir. `order` is that of the strategy: JointStep::order.
RunFacts RunFactsOf(const RunConfig& config, const Graph& graph, const Dataset& dataset,
                    const checkpoint::Facts& order);

// Why a training that goes on from a checkpoint will not end with the bits of an unbroken one:
// "workers is 3, was 2"; empty if it will.
std::vector<std::string> DifferencesFrom(const checkpoint::Manifest& saved, const RunFacts& facts);

}  // namespace tutti
