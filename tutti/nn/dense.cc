#include "tutti/nn/dense.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {

Output Dense(Input x, int64_t units, const DenseOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "Dense");
  const int64_t inputs = KnownDim(x, -1, "Dense");
  if (units < 1) {
    ThrowInvalidArgument(fmt::format("Dense: units is {}; expected at least 1", units));
  }
  const Output in = x.output();
  NameScope scope(graph, name);
  const Output weights = GetWeights(x, "Dense", options.weights, {inputs, units}, "weights");
  // A vector is one row.
  const bool merged = in.shape().rank() != 2;
  const Output rows = merged ? MergeLeading(x, 1) : in;
  Output y = MatMul(Input(rows, x.where()), weights);
  if (options.bias) {
    y = BiasAdd(y, GetWeights(x, "Dense", options.biases, {units}, "bias"));
  }
  y = Activate(y, options.activation);
  return merged ? UnmergeLeading(y, in, 1) : y;
}

}  // namespace tutti::nn
