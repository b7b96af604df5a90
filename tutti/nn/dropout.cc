#include "tutti/nn/dropout.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/seed.h"

namespace tutti::nn {

Output Dropout(Input x, double rate, const DropoutLayerOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "Dropout");
  if (!(rate >= 0 && rate < 1)) {
    ThrowInvalidArgument(fmt::format("Dropout: rate is {}; expected at least 0 and below 1", rate));
  }
  if (!options.training || rate == 0) return x.output();
  NameScope scope(graph, name);
  return tutti::Dropout(
      x, rate, {.random = {.seed = SeedOf(graph), .step = options.step}, .offset = options.offset});
}

}  // namespace tutti::nn
