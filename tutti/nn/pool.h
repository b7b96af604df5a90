#pragma once

#include <array>
#include <string_view>

#include "tutti/graph/ops/pool.h"

namespace tutti::nn {

struct PoolLayerOptions {
  std::array<int64_t, 2> strides = {0, 0};  // 0: the window
  Padding padding = Padding::kValid;
};

// The largest value, the mean, of each window of images [batch, height, width, channels].
Output MaxPool(Input x, const std::array<int64_t, 2>& window, const PoolLayerOptions& options = {},
               std::string_view name = "");
Output AvgPool(Input x, const std::array<int64_t, 2>& window, const PoolLayerOptions& options = {},
               std::string_view name = "");

// The mean of each image and channel: [batch, height, width, channels] -> [batch, channels].
Output GlobalAvgPool(Input x, std::string_view name = "");

}  // namespace tutti::nn
