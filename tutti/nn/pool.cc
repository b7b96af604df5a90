#include "tutti/nn/pool.h"

namespace tutti::nn {
namespace {

PoolOptions OptionsOf(const std::array<int64_t, 2>& window, const PoolLayerOptions& options) {
  const auto stride = [&](size_t i) {
    return options.strides[i] == 0 ? window[i] : options.strides[i];
  };
  return {.window = window, .strides = {stride(0), stride(1)}, .padding = options.padding};
}

}  // namespace

Output MaxPool(Input x, const std::array<int64_t, 2>& window, const PoolLayerOptions& options,
               std::string_view name) {
  return tutti::MaxPool(x, OptionsOf(window, options), name);
}

Output AvgPool(Input x, const std::array<int64_t, 2>& window, const PoolLayerOptions& options,
               std::string_view name) {
  return tutti::AvgPool(x, OptionsOf(window, options), name);
}

Output GlobalAvgPool(Input x, std::string_view name) { return tutti::GlobalAvgPool(x, name); }

}  // namespace tutti::nn
