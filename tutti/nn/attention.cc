// Heads become batch entries: [batch, length, width] is split into [batch, length, heads, size] and
// turned to [batch, heads, length, size], so that scores and weighted sums are batched products.
// The queries are scaled rather than the scores, which are usually more numbers.
#include "tutti/nn/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/graph/ops/source.h"
#include "tutti/nn/dense.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {
namespace {

// Far below any score, yet finite: softmax over a row of nothing else stays defined.
constexpr double kMasked = -1e9;

void RequireSequence(const Input& x, std::string_view what) {
  if (x.output().shape().rank() != 3) {
    ThrowInvalidArgument(
        fmt::format("MultiHeadAttention: the shape of {} {} is {}; expected [batch, length, width]",
                    what, x.output().node->Describe(), x.output().shape().ToString()));
  }
}

// [batch, length, width] -> [batch, heads, length, width / heads].
Output SplitHeads(Output x, int64_t width, int64_t heads) {
  const int64_t size = width / heads;
  const Shape& shape = x.shape();
  Output split;
  if (shape[0] >= 0 || shape[1] >= 0) {
    split = Reshape(x, Shape{shape[0], shape[1], heads, size});
  } else {
    const Output front = Slice(ShapeOf(x), std::vector<int64_t>{0}, std::vector<int64_t>{2});
    const Output back = Constant(x.graph(), Tensor::Vector<int64_t>({heads, size}));
    split = Reshape(x, Input(Concat({front, back}, 0)));
  }
  return Transpose(split, {0, 2, 1, 3});
}

// [batch, heads, length, size] -> [batch * length, width].
Output JoinHeads(Output x, int64_t width) {
  return Reshape(Transpose(x, {0, 2, 1, 3}), Shape{-1, width});
}

// bool [queries, keys]: key <= query.
Output CausalMask(Output scores) {
  const auto positions = [&](int64_t axis) {
    const Output size = Reshape(
        Slice(ShapeOf(scores), std::vector<int64_t>{axis}, std::vector<int64_t>{1}), Shape{});
    return Range(int64_t{0}, size, int64_t{1});
  };
  return GreaterEqual(ExpandDims(positions(2), 1), ExpandDims(positions(3), 0));
}

}  // namespace

Output MultiHeadAttention(Input x, const AttentionOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "MultiHeadAttention");
  RequireSequence(x, "the input");
  const int64_t width = KnownDim(x, -1, "MultiHeadAttention");
  if (options.heads < 1 || width % options.heads != 0) {
    ThrowInvalidArgument(fmt::format("MultiHeadAttention: {} heads do not divide the width {}",
                                     options.heads, width));
  }
  const Input source = options.keys ? Input(options.keys, x.where()) : x;
  RequireSequence(source, "the keys");
  NameScope scope(graph, name);
  const DenseOptions dense{.bias = options.bias, .weights = options.weights};
  const Output query = Dense(x, width, dense, "query");
  const Output key = Dense(source, width, dense, "key");
  const Output value = Dense(source, width, dense, "value");
  const double scale = 1 / std::sqrt(double(width / options.heads));
  Output scores = BatchMatMul(SplitHeads(Mul(query, scale), width, options.heads),
                              SplitHeads(key, width, options.heads), {.transpose_b = true});
  if (options.causal) scores = Select(CausalMask(scores), scores, kMasked);
  if (options.mask) scores = Select(Input(options.mask, x.where()), scores, kMasked);
  const Output weights = nn::Dropout(
      Softmax(scores), options.dropout,
      {.training = options.training, .first_sample = options.first_sample, .step = options.step});
  const Output context = BatchMatMul(weights, SplitHeads(value, width, options.heads));
  const Output result = Dense(JoinHeads(context, width), width, dense, "output");
  return UnmergeLeading(result, x.output(), 1);
}

}  // namespace tutti::nn
