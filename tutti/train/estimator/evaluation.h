#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/train/estimator/batch_inputs.h"
#include "tutti/train/estimator/estimator.h"

namespace tutti {

// A model in Mode::kEvaluate, with variables of its own or on those of its training.
class Evaluation {
 public:
  // Builds it into `graph`. With `reuse` the model was built there before, to be trained. Throws
  // Error.
  Evaluation(Graph& graph, const ModelFunction& model, const Dataset& dataset, bool reuse);

  // Means of loss and metrics over the parts that the workers have of `dataset`, up to `max_steps`
  // batches where that is not 0. All workers call it. Throws Error: kCancelled after a stop
  // (train/stop.h) of any worker.
  Metrics Run(Session& session, const Dataset& dataset, int64_t max_steps, Peers& peers) const;

 private:
  BatchInputs inputs_;
  std::vector<std::string> names_;
  std::vector<Output> values_;  // means over the batch
};

}  // namespace tutti
