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
  double momentum = 0.99;  // of the moving averages: the share of the old value that a step keeps
  double epsilon = 1e-3;
};

// x [batch, ..., channels] with each channel brought to mean 0 and variance 1 over the batch, then
// scaled and shifted. Variables "scale", "offset", and the untrained "moving_mean" and
// "moving_variance" [channels]. Optimizer::Apply adds the updates of these averages for all layers
// that its gradients come from. With several workers each normalises by its own part of the batch,
// and the averages move by the mean of the workers' changes (Strategy::AggregateState), so that
// they are the same everywhere. To evaluate, build the layer with training = false under a
// ReuseScope.
Output BatchNorm(Input x, const BatchNormOptions& options = {}, std::string_view name = "norm");

// The nodes that update moving averages of `graph`. `users`, unless null, receives for each the
// node whose running makes its update due.
std::vector<const Node*> StateUpdates(const Graph& graph,
                                      std::vector<const Node*>* users = nullptr);

}  // namespace tutti::nn
