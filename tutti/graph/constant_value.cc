// What a graph tells of a value without running it. Shape functions need the values of small
// integer tensors: the target of a Reshape, the dimensions of a Fill. Those are mostly Constants,
// or put together from Shape.
#include <algorithm>
#include <vector>

#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// How far back the look goes. Longer chains are left to constant folding, which has no such limit.
constexpr int kMostSteps = 8;

Tensor IntegerVector(DType dtype, std::span<const int64_t> values) {
  Tensor result(dtype, Shape{int64_t(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == kInt32) {
      result.data<int32_t>()[i] = int32_t(values[i]);
    } else {
      result.data<int64_t>()[i] = values[i];
    }
  }
  return result;
}

std::optional<std::vector<int64_t>> Integers(const Tensor& tensor) {
  std::vector<int64_t> values;
  if (tensor.dtype() == kInt32) {
    const auto span = tensor.values<int32_t>();
    values.assign(span.begin(), span.end());
  } else if (tensor.dtype() == kInt64) {
    const auto span = tensor.values<int64_t>();
    values.assign(span.begin(), span.end());
  } else {
    return std::nullopt;
  }
  return values;
}

// The part of `whole` that a Slice with constant `begin` and `size` takes.
std::optional<std::vector<int64_t>> PartOf(const std::vector<int64_t>& whole, const Node& begin,
                                           const Node& size) {
  if (begin.op() != "Constant" || size.op() != "Constant") return std::nullopt;
  const auto first = Integers(begin.attr<Tensor>("value"));
  const auto count = Integers(size.attr<Tensor>("value"));
  if (!first || !count || first->size() != 1 || count->size() != 1) return std::nullopt;
  const int64_t length = int64_t(whole.size());
  const int64_t from = first->front();
  if (from < 0 || from > length) return std::nullopt;
  const int64_t taken = count->front() == -1 ? length - from : count->front();
  if (taken < 0 || taken > length - from) return std::nullopt;
  return std::vector<int64_t>(whole.begin() + from, whole.begin() + from + taken);
}

// The elements of an integer tensor of rank 0 or 1, kUnknownDim for those not known; nullopt if
// even their number is unknown. Unknown and -1 look alike here, as they do in a shape.
std::optional<std::vector<int64_t>> PartialIntegers(Output output, int steps) {
  if (steps == 0) return std::nullopt;
  const Node& node = *output.node;
  if (node.op() == "Constant") return Integers(node.attr<Tensor>("value"));
  if (node.op() == "Identity" || node.op() == "Cast" || node.op() == "StopGradient") {
    if (output.dtype() != kInt32 && output.dtype() != kInt64) return std::nullopt;
    return PartialIntegers(node.input(0), steps - 1);
  }
  if (node.op() == "Shape" && node.input(0).shape().has_rank()) {
    const auto dims = node.input(0).shape().dims();
    return std::vector<int64_t>(dims.begin(), dims.end());
  }
  if (node.op() == "Rank" && node.input(0).shape().has_rank()) {
    return std::vector<int64_t>{node.input(0).shape().rank()};
  }
  if (node.op() == "Size") return std::vector<int64_t>{node.input(0).shape().elements()};
  if (node.op() == "Slice" && node.input(0).shape().rank() == 1) {
    const auto whole = PartialIntegers(node.input(0), steps - 1);
    return whole ? PartOf(*whole, *node.input(1).node, *node.input(2).node) : std::nullopt;
  }
  if (node.op() == "Pack" || node.op() == "Concat") {
    std::vector<int64_t> joined;
    for (const Output& input : node.inputs()) {
      const auto part = PartialIntegers(input, steps - 1);
      if (!part && node.op() == "Concat") return std::nullopt;
      if (part) {
        joined.insert(joined.end(), part->begin(), part->end());
      } else {
        joined.push_back(kUnknownDim);
      }
    }
    return joined;
  }
  if (output.shape().rank() == 0 && IsInteger(output.dtype()))
    return std::vector<int64_t>{kUnknownDim};
  return std::nullopt;
}

}  // namespace

std::optional<Tensor> ConstantValue(Output output) {
  if (output.node->op() == "Constant") return output.node->attr<Tensor>("value");
  if (output.dtype() != kInt32 && output.dtype() != kInt64) return std::nullopt;
  if (!output.shape().IsFullyKnown() || output.shape().rank() > 1) return std::nullopt;
  const auto values = PartialIntegers(output, kMostSteps);
  if (!values || int64_t(values->size()) != output.shape().elements()) return std::nullopt;
  for (const int64_t value : *values) {
    if (value == kUnknownDim) return std::nullopt;
  }
  return IntegerVector(output.dtype(), *values).Reshape(output.shape());
}

absl::StatusOr<Shape> InferContext::ShapeInput(int i) const {
  TUTTI_RETURN_IF_ERROR(RequireIndex(i));
  TUTTI_RETURN_IF_ERROR(RequireRank(i, 1));
  const auto dims = PartialIntegers(spec_.inputs[i], kMostSteps);
  if (!dims) {
    const Shape& shape_of_shape = shape(i);
    if (!shape_of_shape.IsFullyKnown()) return Shape::UnknownRank();
    if (shape_of_shape.dim(0) > kMaxRank) {
      return Error("{} has {} elements; a tensor has at most {} dimensions", def_.InputName(i),
                   shape_of_shape.dim(0), kMaxRank);
    }
    return Shape::UnknownOfRank(int(shape_of_shape.dim(0)));
  }
  std::string why;
  const auto made = Shape::Make(*dims, &why);
  if (!made) return Error("{}: {}", def_.InputName(i), why);
  return *made;
}

}  // namespace tutti
