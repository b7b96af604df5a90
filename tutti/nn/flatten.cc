#include "tutti/nn/flatten.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {

Output Flatten(Input x, std::string_view name) {
  GraphOf(x, "Flatten");
  const Shape& shape = x.output().shape();
  if (!shape.has_rank() || shape.rank() < 1) {
    ThrowInvalidArgument(
        fmt::format("Flatten: the shape of the input {} is {}; expected at least one dimension",
                    x.output().node->Describe(), shape.ToString()));
  }
  int64_t width = 1;
  for (int i = 1; i < shape.rank(); ++i) {
    width = width < 0 || shape[i] < 0 ? -1 : width * shape[i];
  }
  // Either is enough for Reshape to find the other.
  if (width < 0 && shape[0] < 0) {
    ThrowInvalidArgument(
        fmt::format("Flatten: the shape of the input {} is {}; the batch, or else every other "
                    "dimension, must be known",
                    x.output().node->Describe(), shape.ToString()));
  }
  return Reshape(x, Shape{shape[0], width}, name);
}

}  // namespace tutti::nn
