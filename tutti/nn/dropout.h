#pragma once

#include <string_view>

#include "tutti/graph/ops/random.h"

namespace tutti::nn {

struct DropoutLayerOptions {
  bool training = true;  // false: x itself
  // An int64 scalar, the index in the global batch of the first sample of x, whose first dimension
  // counts samples. Empty: the position of the SampleScope, for an x whose first dimension is
  // unknown; without a scope, and for an x of a fixed first dimension (weights), 0.
  Output first_sample = {};
  // An int64 scalar that differs from step to step. Empty: the graph's variable "global_step",
  // which GlobalStep(graph) makes; where the graph has none, the count of the session's runs.
  Output step = {};
};

// x with each element set to 0 with probability `rate`, else divided by 1 - rate. Which elements
// are dropped depends only on the graph's seed, the layer's name, the step and the element's place
// in the global batch: several workers drop the same elements as one process with the joined batch,
// and a resumed training the same as an uninterrupted one.
Output Dropout(Input x, double rate, const DropoutLayerOptions& options = {},
               std::string_view name = "dropout");

}  // namespace tutti::nn
