#pragma once

#include <array>
#include <string_view>

#include "tutti/graph/ops/conv.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/initializers.h"

namespace tutti::nn {

struct Conv2dOptions {
  Activation activation = kLinear;
  std::array<int64_t, 2> strides = {1, 1};
  std::array<int64_t, 2> dilations = {1, 1};
  Padding padding = Padding::kSame;
  bool bias = true;
  InitializerOf filter = GlorotUniform;
  InitializerOf biases = Zeros;
};

// activation(x convolved with `filters` filters of `window` + bias): images [batch, height, width,
// channels] -> [batch, height', width', filters]. Variables "filter" [height, width, channels,
// filters] and "bias" [filters]. The channels of x must be known.
Output Conv2d(Input x, int64_t filters, const std::array<int64_t, 2>& window,
              const Conv2dOptions& options = {}, std::string_view name = "conv");

}  // namespace tutti::nn
