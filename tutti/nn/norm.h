#pragma once

#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

namespace tutti::nn {

struct LayerNormOptions {
  double epsilon = 1e-5;
};

// x [..., width] with each row brought to mean 0 and variance 1, then scaled and shifted. Variables
// "scale" and "offset" [width].
Output LayerNorm(Input x, const LayerNormOptions& options = {}, std::string_view name = "norm");

struct BatchNormOptions {
  bool training = true;    // false: by the moving averages
  double momentum = 0.99;  // of the moving averages: so much of the old value stays in each step
  double epsilon = 1e-3;
};

// x [batch, ..., channels] with each channel brought to mean 0 and variance 1 over the batch, then
// scaled and shifted. Variables "scale", "offset", and the untrained "moving_mean" and
// "moving_variance" [channels], which the training step updates: Optimizer::Apply takes the updates
// of the layers that its gradients come from along by itself. With several workers each normalises
// by its own part of the batch, and the averages move by the mean of what the workers found
// (Strategy::AggregateState), so that they are the same everywhere. To evaluate, build the layer
// with training = false under a ReuseScope.
Output BatchNorm(Input x, const BatchNormOptions& options = {}, std::string_view name = "norm");

// The nodes that update moving averages of `graph`. `users`, unless null, receives for each the
// node whose running makes its update due.
std::vector<const Node*> StateUpdates(const Graph& graph,
                                      std::vector<const Node*>* users = nullptr);

}  // namespace tutti::nn
