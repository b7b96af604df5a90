#include "tutti/nn/embedding.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/look_up.h"

namespace tutti::nn {

Output Embedding(Input ids, int64_t count, int64_t width, const EmbeddingOptions& options,
                 std::string_view name) {
  Graph& graph = GraphOf(ids, "Embedding");
  if (count < 1 || width < 1) {
    ThrowInvalidArgument(
        fmt::format("Embedding: count is {} and width is {}; expected at least 1", count, width));
  }
  NameScope scope(graph, name);
  const Shape shape{count, width};
  const Initializer initializer =
      options.table
          ? InitializerFor("Embedding", options.table, shape, options.dtype, "table", ids.where())
          : RandomNormal(shape, 0, 1 / std::sqrt(double(width)), options.dtype);
  const Output table = GetVariable(graph, initializer, "table", {}, ids.where());
  return LookUp(Input(table, ids.where()), ids);
}

}  // namespace tutti::nn
