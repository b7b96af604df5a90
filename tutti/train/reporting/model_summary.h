#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// One layer of a model: the nodes of one name scope, or a single node outside of any.
struct LayerSummary {
  std::string name;         // "conv2d_1"
  std::string output = {};  // "[?, 14, 14, 64]"
  int64_t parameters = 0;
  int64_t trained = 0;     // of them, those that are trained
  int64_t bytes = 0;       // of the parameters
  int64_t operations = 0;  // additions and multiplications of one sample, forwards
};

// The layers under `loss` among the first `nodes` nodes of its graph, in the order in which they
// were built. Dimensions that are not known count as 1 in operations.
std::vector<LayerSummary> SummarizeLayers(Output loss, int64_t nodes,
                                          const std::vector<Output>& trained);

// A table for users:
//
//   layer        output            parameters   bytes   operations
//   conv2d       [?, 28, 28, 32]          320  1.3 kB        476 k
//   ...
//   total                             421,642  1.7 MB       7.7 M
std::string RenderLayers(const std::vector<LayerSummary>& layers);

}  // namespace tutti
