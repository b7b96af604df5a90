#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/train/optimizers/gradient_list.h"

namespace tutti {

// Weight decay that does not pass through the optimizer's moments: beside its own update, every
// update subtracts learning_rate * rate * value, the value being that from before the update. Works
// with any optimizer. Of variables whose gradients are rows (look-up tables) only the rows that the
// gradient names decay.
struct WeightDecay {
  double rate = 0;
  // Which variables do not decay, by full name. Not given: those with fewer than 2 dimensions,
  // which are biases and the scales and offsets of normalisations.
  std::function<bool(std::string_view variable)> excluded = {};
};

// The nodes that make the variables of `list` decay when they run, which is after `updates`. Where
// an entry's scale is 0 there is nothing to apply, and nothing decays. Throws Error unless the rate
// is a finite number from 0 on.
std::vector<const Node*> DecayWeights(std::span<const GradientAndVariable> list,
                                      const WeightDecay& decay, Output learning_rate,
                                      const Node* updates);

}  // namespace tutti
