// Slice and StridedSlice are in slice.cc.
#include "tutti/graph/ops/arrange.h"

#include <fmt/format.h>

#include <numeric>

#include "tutti/base/checked.h"
#include "tutti/graph/build.h"
#include "tutti/graph/number.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

// A shape whose dimensions came from arithmetic, checked for the size of their product.
absl::Status SetChecked(InferContext& c, int i, DType dtype, std::span<const int64_t> dims) {
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return c.Error("the result is too large: {}", why);
  c.SetOutput(i, dtype, *shape);
  return absl::OkStatus();
}

absl::Status InferTranspose(InferContext& c) {
  const Shape& x = c.shape(0);
  const auto& perm = c.attr<Ints>("perm");
  const int rank = x.has_rank() ? x.rank() : int(perm.size());
  if (!x.has_rank() && perm.empty()) {
    c.SetOutput(0, c.dtype(0), x);
    return absl::OkStatus();
  }
  if (!perm.empty() && int(perm.size()) != rank) {
    return c.Error("perm has {} values, x is {}; expected one for each dimension", perm.size(),
                   x.ToString());
  }
  Shape result = Shape::UnknownOfRank(rank);
  std::vector<bool> seen(rank, false);
  for (int i = 0; i < rank; ++i) {
    const int64_t from = perm.empty() ? rank - 1 - i : perm[i];
    if (from < 0 || from >= rank || seen[from]) {
      return c.Error("perm[{}] is {}; expected each of 0 to {} once", i, from, rank - 1);
    }
    seen[from] = true;
    if (x.has_rank()) result = result.WithDim(i, x.dim(int(from)));
  }
  c.SetOutput(0, c.dtype(0), result);
  return absl::OkStatus();
}

absl::Status InferConcat(InferContext& c) {
  if (c.num_inputs() == 0) return c.Error("no values given; expected at least one");
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  Shape merged = Shape::UnknownRank();
  int axis = -1;
  int64_t sum = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Shape& shape = c.shape(i);
    if (!shape.has_rank()) {
      sum = kUnknownDim;
      continue;
    }
    if (shape.rank() == 0) {
      return c.Error("{} is a scalar; expected at least 1 dimension, use Pack to join scalars",
                     c.def().InputName(i));
    }
    TUTTI_ASSIGN_OR_RETURN(axis, c.NormalizeAxis(c.attr<int64_t>("axis"), shape.rank()));
    const auto both = merged.MergedWith(shape.WithDim(axis, kUnknownDim));
    if (!both) {
      return c.Error("{} is {}, the values before it are {}; only dimension {} may differ",
                     c.def().InputName(i), shape.ToString(), merged.ToString(), axis);
    }
    merged = *both;
    if (shape.dim(axis) == kUnknownDim) sum = kUnknownDim;
    if (sum == kUnknownDim) continue;
    const auto next = CheckedAdd(sum, shape.dim(axis));
    if (!next) return c.Error("the sum of the dimensions {} passes 2^63", axis);
    sum = *next;
  }
  if (!merged.has_rank()) {
    c.SetOutput(0, c.dtype(0), merged);
    return absl::OkStatus();
  }
  return SetChecked(c, 0, c.dtype(0), merged.WithDim(axis, sum).dims());
}

absl::Status InferConcatGrad(InferContext& c) {
  if (c.num_inputs() == 1) return c.Error("no shapes given; expected at least one");
  for (int i = 1; i < c.num_inputs(); ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Shape part, c.ShapeInput(i));
    c.SetOutput(i - 1, c.dtype(0), part);
  }
  return absl::OkStatus();
}

absl::Status InferSplit(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  const Shape& x = c.shape(0);
  const int64_t num = c.attr<int64_t>("num");
  const auto& sizes = c.attr<Ints>("sizes");
  if (sizes.empty() == (num == 0) || num < 0) {
    return c.Error("num is {} with {} sizes; expected either num of 1 or more, or sizes", num,
                   sizes.size());
  }
  if (num > 65536) return c.Error("num is {}; expected at most 65536 parts", num);
  const int parts = sizes.empty() ? int(num) : int(sizes.size());
  if (!x.has_rank()) {
    for (int i = 0; i < parts; ++i) c.SetOutput(i, c.dtype(0), x);
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(c.attr<int64_t>("axis"), x.rank()));
  const int64_t dim = x.dim(axis);
  if (sizes.empty() && dim != kUnknownDim && dim % num != 0) {
    return c.Error("x is {}; its dimension {} of {} does not divide into {} equal parts",
                   x.ToString(), axis, dim, num);
  }
  int64_t sum = 0;
  for (int i = 0; i < parts; ++i) {
    const int64_t size = !sizes.empty() ? sizes[i] : dim == kUnknownDim ? kUnknownDim : dim / num;
    if (!sizes.empty() && size < 0) return c.Error("sizes[{}] is {}; expected 0 or more", i, size);
    const auto next = CheckedAdd(sum, size);
    if (!next) return c.Error("the sizes add up to more than 2^63");
    sum = *next;
    TUTTI_RETURN_IF_ERROR(SetChecked(c, i, c.dtype(0), x.WithDim(axis, size).dims()));
  }
  if (!sizes.empty() && dim != kUnknownDim && sum != dim) {
    return c.Error("the sizes add up to {}, x is {}; expected {}, its dimension {}", sum,
                   x.ToString(), dim, axis);
  }
  return absl::OkStatus();
}

absl::Status InferPad(InferContext& c) {
  const Shape& x = c.shape(0);
  const auto& paddings = c.attr<Ints>("paddings");
  if (const auto value = NumberAs(c.attr<double>("value"), c.dtype(0)); !value.ok()) {
    return c.Error("value: {}", MessageOf(value.status()));
  }
  if (!x.has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownOfRank(int(paddings.size() / 2)));
    return absl::OkStatus();
  }
  if (int(paddings.size()) != 2 * x.rank()) {
    return c.Error("paddings has {} values, x is {}; expected {}: before and behind each dimension",
                   paddings.size(), x.ToString(), 2 * x.rank());
  }
  Ints dims(x.dims().begin(), x.dims().end());
  for (int i = 0; i < x.rank(); ++i) {
    for (int side = 0; side < 2; ++side) {
      const int64_t padding = paddings[2 * i + side];
      if (padding < 0) {
        return c.Error("paddings[{}] is {}; expected 0 or more", 2 * i + side, padding);
      }
      if (dims[i] == kUnknownDim) continue;
      const auto next = CheckedAdd(dims[i], padding);
      if (!next) return c.Error("dimension {} of the result passes 2^63", i);
      dims[i] = *next;
    }
  }
  return SetChecked(c, 0, c.dtype(0), dims);
}

absl::Status InferPack(InferContext& c) {
  if (c.num_inputs() == 0) return c.Error("no values given; expected at least one");
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  Shape merged = Shape::UnknownRank();
  for (int i = 0; i < c.num_inputs(); ++i) {
    const auto both = merged.MergedWith(c.shape(i));
    if (!both) {
      return c.Error("{} is {}, the values before it are {}; expected equal shapes",
                     c.def().InputName(i), c.shape(i).ToString(), merged.ToString());
    }
    merged = *both;
  }
  if (!merged.has_rank()) {
    c.SetOutput(0, c.dtype(0), merged);
    return absl::OkStatus();
  }
  if (merged.rank() == kMaxRank) {
    return c.Error("{}; a tensor has at most {} dimensions", c.DescribeInput(0), kMaxRank);
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis,
                         c.NormalizeAxis(c.attr<int64_t>("axis"), merged.rank() + 1));
  Ints dims(merged.dims().begin(), merged.dims().end());
  dims.insert(dims.begin() + axis, c.num_inputs());
  return SetChecked(c, 0, c.dtype(0), dims);
}

absl::Status InferUnpack(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  const Shape& x = c.shape(0);
  const int64_t num = c.attr<int64_t>("num");
  if (num < 0 || num > 65536) return c.Error("num is {}; expected 0 to 65536", num);
  Shape part = Shape::UnknownRank();
  if (x.has_rank()) {
    TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(c.attr<int64_t>("axis"), x.rank()));
    if (x.dim(axis) != num && x.dim(axis) != kUnknownDim) {
      return c.Error("x is {}; expected {} in dimension {}", x.ToString(), num, axis);
    }
    part = x.WithoutDim(axis);
  }
  for (int i = 0; i < num; ++i) c.SetOutput(i, c.dtype(0), part);
  return absl::OkStatus();
}

absl::Status CheckMultiples(const InferContext& c, int rank) {
  const auto& multiples = c.attr<Ints>("multiples");
  if (int(multiples.size()) != rank) {
    return c.Error("multiples has {} values; expected {}, one for each dimension", multiples.size(),
                   rank);
  }
  for (int i = 0; i < rank; ++i) {
    if (multiples[i] < 0) {
      return c.Error("multiples[{}] is {}; expected 0 or more", i, multiples[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status InferTile(InferContext& c) {
  const Shape& x = c.shape(0);
  const auto& multiples = c.attr<Ints>("multiples");
  if (!x.has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownOfRank(int(multiples.size())));
    return absl::OkStatus();
  }
  TUTTI_RETURN_IF_ERROR(CheckMultiples(c, x.rank()));
  Ints dims(x.dims().begin(), x.dims().end());
  for (int i = 0; i < x.rank(); ++i) {
    if (dims[i] == kUnknownDim) continue;
    const auto next = CheckedMul(dims[i], multiples[i]);
    if (!next) return c.Error("dimension {} of the result passes 2^63", i);
    dims[i] = *next;
  }
  return SetChecked(c, 0, c.dtype(0), dims);
}

absl::Status InferTileGrad(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const Shape x, c.ShapeInput(1));
  if (x.has_rank()) TUTTI_RETURN_IF_ERROR(CheckMultiples(c, x.rank()));
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

absl::Status InferReverse(InferContext& c) {
  const Shape& x = c.shape(0);
  if (x.has_rank()) {
    for (const int64_t axis : c.attr<Ints>("axes")) {
      TUTTI_RETURN_IF_ERROR(c.NormalizeAxis(axis, x.rank()).status());
    }
  }
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

}  // namespace

void RegisterArrangeOps(OpRegistry& registry) {
  registry.Add({.name = "Transpose",
                .inputs = {"x"},
                .attrs = {{"perm", Ints{}}},
                .infer = InferTranspose,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Concat",
                .inputs = {"values..."},
                .attrs = {{"axis", AttrType::kInt}},
                .infer = InferConcat,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "ConcatGrad",
                .inputs = {"gradient", "shapes..."},
                .attrs = {{"axis", AttrType::kInt}},
                .infer = InferConcatGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Split",
                .inputs = {"x"},
                .attrs = {{"axis", AttrType::kInt}, {"num", int64_t{0}}, {"sizes", Ints{}}},
                .infer = InferSplit,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Pad",
                .inputs = {"x"},
                .attrs = {{"paddings", AttrType::kInts}, {"value", 0.0}},
                .infer = InferPad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Pack",
                .inputs = {"values..."},
                .attrs = {{"axis", int64_t{0}}},
                .infer = InferPack,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Unpack",
                .inputs = {"x"},
                .attrs = {{"axis", int64_t{0}}, {"num", AttrType::kInt}},
                .infer = InferUnpack,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Tile",
                .inputs = {"x"},
                .attrs = {{"multiples", AttrType::kInts}},
                .infer = InferTile,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "TileGrad",
                .inputs = {"gradient", "x_shape"},
                .attrs = {{"multiples", AttrType::kInts}},
                .infer = InferTileGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Reverse",
                .inputs = {"x"},
                .attrs = {{"axes", AttrType::kInts}},
                .infer = InferReverse,
                .gradient = Gradient::kDefined});
}

Output Transpose(Input x, const std::vector<int64_t>& perm, std::string_view name) {
  return OpBuilder("Transpose", name).In(x).Attr("perm", perm).Build();
}

Output Concat(std::span<const Output> values, int axis, std::string_view name,
              std::source_location where) {
  return OpBuilder("Concat", name).At(where).In(values).Attr("axis", axis).Build();
}

std::vector<Output> ConcatGrad(Input gradient, std::span<const Output> shapes, int axis,
                               std::string_view name) {
  return OpBuilder("ConcatGrad", name).In(gradient).In(shapes).Attr("axis", axis).BuildAll();
}

std::vector<Output> Split(Input x, int axis, int64_t num, std::string_view name) {
  return OpBuilder("Split", name).In(x).Attr("axis", axis).Attr("num", num).BuildAll();
}

std::vector<Output> Split(Input x, int axis, const std::vector<int64_t>& sizes,
                          std::string_view name) {
  return OpBuilder("Split", name).In(x).Attr("axis", axis).Attr("sizes", sizes).BuildAll();
}

Output Pad(Input x, const std::vector<int64_t>& paddings, double value, std::string_view name) {
  return OpBuilder("Pad", name).In(x).Attr("paddings", paddings).Attr("value", value).Build();
}

Output Pack(std::span<const Output> values, int axis, std::string_view name,
            std::source_location where) {
  return OpBuilder("Pack", name).At(where).In(values).Attr("axis", axis).Build();
}

std::vector<Output> Unpack(Input x, int axis, std::string_view name) {
  const Shape& shape = x.is_literal() ? x.literal().shape() : x.output().shape();
  const bool in_range = shape.has_rank() && axis >= -shape.rank() && axis < shape.rank();
  if (in_range && shape.dim(axis) == kUnknownDim) {
    ThrowInvalidArgument(fmt::format(
        "Unpack: x is {}; its dimension {} must be known, because each slice is an output",
        shape.ToString(), axis));
  }
  const int64_t num = in_range ? shape.dim(axis) : 0;
  return OpBuilder("Unpack", name).In(x).Attr("axis", axis).Attr("num", num).BuildAll();
}

Output Tile(Input x, const std::vector<int64_t>& multiples, std::string_view name) {
  return OpBuilder("Tile", name).In(x).Attr("multiples", multiples).Build();
}

Output TileGrad(Input gradient, Input x_shape, const std::vector<int64_t>& multiples,
                std::string_view name) {
  return OpBuilder("TileGrad", name).In(gradient).In(x_shape).Attr("multiples", multiples).Build();
}

Output Reverse(Input x, const std::vector<int64_t>& axes, std::string_view name) {
  return OpBuilder("Reverse", name).In(x).Attr("axes", axes).Build();
}

}  // namespace tutti
