#pragma once

#include <vector>

#include "tools/tutti/models.h"

namespace tutti::tools {

// What gives a model's weights the first values that its peers have too (even_values.h): run
// `targets` with `feeds` after Initialize.
struct FirstValues {
  std::vector<const Node*> targets;
  std::vector<Feed> feeds;
};

// Adds the nodes for it, before a session is made. The n-th trainable variable with two or more
// dimensions, in the order in which they were added, gets EvenWeights of stream n, from 1 on. The
// others keep what Initialize gives them: biases 0, scales 1.
FirstValues AddFirstValues(StepModel& model);

}  // namespace tutti::tools
