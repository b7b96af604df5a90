#pragma once

#include <string_view>

#include "tutti/graph/ops/random.h"

namespace tutti::nn {

struct DropoutLayerOptions {
  bool training = true;  // false: x itself
  // An int64 scalar, the index in the global batch of the first element of x: see
  // graph/ops/random.h.
  Output offset = {};
  // An int64 scalar that differs from step to step, such as GlobalStep(graph), which makes a
  // resumed training repeat what it would have done. Empty: the count of the session's runs.
  Output step = {};
};

// x with each element zero with probability `rate` and divided by 1 - rate else. Which ones follows
// from the graph's seed, the layer's name, the step and the element's place in the global batch.
Output Dropout(Input x, double rate, const DropoutLayerOptions& options = {},
               std::string_view name = "dropout");

}  // namespace tutti::nn
