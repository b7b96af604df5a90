#pragma once

#include <string_view>

#include "tutti/nn/activation.h"
#include "tutti/nn/initializers.h"

namespace tutti::nn {

struct DenseOptions {
  Activation activation = kLinear;
  bool bias = true;
  InitializerOf weights = GlorotUniform;
  InitializerOf biases = Zeros;
};

// activation(x * weights + bias) over the last dimension: [..., inputs] -> [..., units]. Variables
// "weights" [inputs, units] and "bias" [units]. The last dimension of x must be known.
Output Dense(Input x, int64_t units, const DenseOptions& options = {},
             std::string_view name = "dense");

}  // namespace tutti::nn
