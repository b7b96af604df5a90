#include "tutti/nn/conv.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {

Output Conv2d(Input x, int64_t filters, const std::array<int64_t, 2>& window,
              const Conv2dOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "Conv2d");
  const int64_t channels = KnownDim(x, -1, "Conv2d");
  if (filters < 1 || window[0] < 1 || window[1] < 1) {
    ThrowInvalidArgument(fmt::format("Conv2d: {} filters of {} x {}; expected at least 1 of each",
                                     filters, window[0], window[1]));
  }
  NameScope scope(graph, name);
  const Output filter =
      GetWeights(x, "Conv2d", options.filter, {window[0], window[1], channels, filters}, "filter");
  Output y = Conv2D(
      x, filter,
      {.strides = options.strides, .dilations = options.dilations, .padding = options.padding});
  if (options.bias) {
    y = BiasAdd(y, GetWeights(x, "Conv2d", options.biases, {filters}, "bias"));
  }
  return Activate(y, options.activation);
}

}  // namespace tutti::nn
