#include <fmt/format.h>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

constexpr int64_t kMostPartitions = 65536;

absl::Status InferUnique(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 1));
  const Shape& x = c.shape(0);
  c.SetOutput(0, c.dtype(0), Shape{kUnknownDim});
  c.SetOutput(1, kInt64, x.has_rank() ? x : Shape{kUnknownDim});
  c.SetOutput(2, kInt64, Shape{kUnknownDim});
  return absl::OkStatus();
}

absl::Status InferTopK(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  const Shape& x = c.shape(0);
  const int64_t k = c.attr<int64_t>("k");
  if (k < 0) return c.Error("k is {}; expected 0 or more", k);
  if (x.has_rank() && x.dim(-1) != kUnknownDim && k > x.dim(-1)) {
    return c.Error("k is {}, x is {}; expected at most {}, its last dimension", k, x.ToString(),
                   x.dim(-1));
  }
  const Shape result = x.has_rank() ? x.WithDim(-1, k) : x;
  c.SetOutput(0, c.dtype(0), result);
  c.SetOutput(1, kInt64, result);
  return absl::OkStatus();
}

absl::Status InferDynamicPartition(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  const int64_t num = c.attr<int64_t>("num_partitions");
  if (num < 1 || num > kMostPartitions) {
    return c.Error("num_partitions is {}; expected 1 to {}", num, kMostPartitions);
  }
  const Shape& data = c.shape(0);
  const Shape& partitions = c.shape(1);
  Shape part = Shape::UnknownRank();
  if (data.has_rank() && partitions.has_rank()) {
    if (partitions.rank() > data.rank() ||
        !Shape(data.dims().first(partitions.rank())).CompatibleWith(partitions)) {
      return c.Error(
          "data is {}, partitions is {}; expected partitions to have the first dimensions of data",
          data.ToString(), partitions.ToString());
    }
    const auto slice = data.dims().subspan(partitions.rank());
    if (slice.size() == size_t{kMaxRank}) {
      return c.Error("data is {}; a slice of it with one dimension more has too many",
                     data.ToString());
    }
    part = Shape(slice).WithInserted(0, kUnknownDim);
  }
  for (int i = 0; i < num; ++i) c.SetOutput(i, c.dtype(0), part);
  return absl::OkStatus();
}

// What follows the dimensions of `indices` in `data`; nullopt when they do not fit.
std::optional<Shape> SliceBehind(const Shape& indices, const Shape& data) {
  if (!indices.has_rank() || !data.has_rank()) return Shape::UnknownRank();
  if (indices.rank() > data.rank() ||
      !Shape(data.dims().first(indices.rank())).CompatibleWith(indices)) {
    return std::nullopt;
  }
  return Shape(data.dims().subspan(indices.rank()));
}

// Inputs: all indices, then as many data.
absl::Status InferDynamicStitch(InferContext& c) {
  const int count = c.num_inputs() / 2;
  if (count == 0 || c.num_inputs() % 2 != 0) {
    return c.Error("{} inputs given; expected as many indices as data, at least one each",
                   c.num_inputs());
  }
  Shape slice = Shape::UnknownRank();
  for (int i = 0; i < count; ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(i));
    if (c.dtype(i) != c.dtype(0)) {
      return c.Error("{}, {}; expected one dtype for all indices", c.DescribeInput(0),
                     c.DescribeInput(i));
    }
    const auto behind = SliceBehind(c.shape(i), c.shape(count + i));
    if (!behind) {
      return c.Error(
          "indices[{}] is {}, data[{}] is {}; expected data to start with its dimensions", i,
          c.shape(i).ToString(), i, c.shape(count + i).ToString());
    }
    const auto merged = slice.MergedWith(*behind);
    if (!merged) {
      return c.Error("the slices of data[{}] are {}, those before it are {}; expected equal ones",
                     i, behind->ToString(), slice.ToString());
    }
    slice = *merged;
  }
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType(count));
  if (slice.rank() == kMaxRank) {
    return c.Error("the slices are {}; with one dimension more they have too many",
                   slice.ToString());
  }
  c.SetOutput(0, c.dtype(count), slice.has_rank() ? slice.WithInserted(0, kUnknownDim) : slice);
  return absl::OkStatus();
}

absl::Status InferDynamicStitchGrad(InferContext& c) {
  if (c.num_inputs() < 2) return c.Error("no indices given; expected at least one");
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  for (int i = 1; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(i));
    if (!c.shape(0).has_rank() || !c.shape(i).has_rank()) {
      c.SetOutput(i - 1, c.dtype(0), Shape::UnknownRank());
      continue;
    }
    std::vector<int64_t> dims(c.shape(i).dims().begin(), c.shape(i).dims().end());
    const auto slice = c.shape(0).dims().subspan(1);
    dims.insert(dims.end(), slice.begin(), slice.end());
    std::string why;
    const auto shape = Shape::Make(dims, &why);
    if (!shape) return c.Error("the result is too large: {}", why);
    c.SetOutput(i - 1, c.dtype(0), *shape);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterPartitionOps(OpRegistry& registry) {
  registry.Add(
      {.name = "Unique", .inputs = {"x"}, .infer = InferUnique, .gradient = Gradient::kNone});
  registry.Add({.name = "TopK",
                .inputs = {"x"},
                .attrs = {{"k", AttrType::kInt}},
                .infer = InferTopK,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "DynamicPartition",
                .inputs = {"data", "partitions"},
                .attrs = {{"num_partitions", AttrType::kInt}},
                .infer = InferDynamicPartition,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "DynamicStitch",
                .inputs = {"indices_and_data..."},
                .infer = InferDynamicStitch,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "DynamicStitchGrad",
                .inputs = {"gradient", "indices..."},
                .infer = InferDynamicStitchGrad,
                .gradient = Gradient::kDefined});
}

UniqueResult Unique(Input x, std::string_view name) {
  const auto outputs = OpBuilder("Unique", name).In(x).BuildAll();
  return {outputs[0], outputs[1], outputs[2]};
}

TopKResult TopK(Input x, int64_t k, std::string_view name) {
  const auto outputs = OpBuilder("TopK", name).In(x).Attr("k", k).BuildAll();
  return {outputs[0], outputs[1]};
}

std::vector<Output> DynamicPartition(Input data, Input partitions, int64_t num_partitions,
                                     std::string_view name) {
  return OpBuilder("DynamicPartition", name)
      .In(data)
      .In(partitions)
      .Attr("num_partitions", num_partitions)
      .BuildAll();
}

Output DynamicStitch(std::span<const Output> indices, std::span<const Output> data,
                     std::string_view name, std::source_location where) {
  if (indices.size() != data.size()) {
    ThrowInvalidArgument(fmt::format("DynamicStitch: {} indices and {} data; expected equally many",
                                     indices.size(), data.size()));
  }
  return OpBuilder("DynamicStitch", name).At(where).In(indices).In(data).Build();
}

std::vector<Output> DynamicStitchGrad(Input gradient, std::span<const Output> indices,
                                      std::string_view name) {
  return OpBuilder("DynamicStitchGrad", name).In(gradient).In(indices).BuildAll();
}

}  // namespace tutti
