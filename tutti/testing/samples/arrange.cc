#include <algorithm>
#include <numeric>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

using Ints = std::vector<int64_t>;

int64_t RandomAxis(Random& random, int rank) { return random.Integer(-rank, rank - 1); }

Ints DimsOf(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

OpCase TransposeCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_rank = 5, .max_elements = 20000});
  Ints perm(size_t(shape.rank()));
  std::iota(perm.begin(), perm.end(), 0);
  random.Shuffle(perm);
  if (random.Integer(0, 3) == 0) perm.clear();
  return {{RandomTensor(random, real, shape)}, {{"perm", perm}}};
}

// Some values that differ along one axis only.
OpCase ConcatCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.min_rank = 1});
  const int64_t axis = RandomAxis(random, shape.rank());
  OpCase op_case;
  for (int64_t i = random.Integer(1, 5); i > 0; --i) {
    op_case.inputs.push_back(
        RandomTensor(random, real, shape.WithDim(int(axis), RandomDim(random, 0, 9))));
  }
  op_case.attrs = {{"axis", axis}};
  return op_case;
}

OpCase ConcatGradCase(Random& random, DType real) {
  const OpCase parts = ConcatCase(random, real);
  const int64_t axis = std::get<int64_t>(parts.attrs[0].second);
  Shape whole = parts.inputs[0].shape().WithDim(int(axis), 0);
  OpCase op_case{{{}}, parts.attrs};
  for (const Tensor& part : parts.inputs) {
    whole = whole.WithDim(int(axis), whole.dim(int(axis)) + part.shape().dim(int(axis)));
    op_case.inputs.push_back(IntegerVector(DimsOf(part.shape())));
  }
  op_case.inputs[0] = RandomTensor(random, real, whole);
  return op_case;
}

OpCase SplitCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.min_rank = 1});
  const int64_t axis = RandomAxis(random, shape.rank());
  if (random.Coin()) {
    const int64_t num = random.Integer(1, 4);
    const Shape whole = shape.WithDim(int(axis), num * random.Integer(0, 5));
    return {{RandomTensor(random, real, whole)}, {{"axis", axis}, {"num", num}}};
  }
  Ints sizes;
  int64_t sum = 0;
  for (int64_t i = random.Integer(1, 4); i > 0; --i) {
    sizes.push_back(random.Integer(0, 7));
    sum += sizes.back();
  }
  return {{RandomTensor(random, real, shape.WithDim(int(axis), sum))},
          {{"axis", axis}, {"sizes", sizes}}};
}

// A block of a tensor: where it begins, how large it is.
struct Block {
  Shape whole;
  Ints begin;
  Ints size;
};

Block RandomBlock(Random& random) {
  Block block{RandomShape(random), {}, {}};
  for (const int64_t dim : block.whole.dims()) {
    block.begin.push_back(random.Integer(0, dim));
    block.size.push_back(random.Integer(0, dim - block.begin.back()));
  }
  return block;
}

OpCase SliceCase(Random& random, DType real) {
  Block block = RandomBlock(random);
  for (int64_t& size : block.size) {
    if (random.Integer(0, 3) == 0) size = -1;
  }
  const DType dtype = random.Pick<DType>({kInt32, kInt64});
  return {{RandomTensor(random, real, block.whole), IntegerVector(block.begin, dtype),
           IntegerVector(block.size, dtype)}};
}

OpCase SliceGradCase(Random& random, DType real) {
  const Block block = RandomBlock(random);
  return {{RandomTensor(random, real, Shape(block.size)), IntegerVector(DimsOf(block.whole)),
           IntegerVector(block.begin)}};
}

// The attributes of a StridedSlice of `shape`, and the shape of its result.
AttrList StridedAttrs(Random& random, const Shape& shape, Shape* result) {
  Ints begin, end, strides, dims;
  int64_t begin_mask = 0, end_mask = 0, shrink_mask = 0;
  const int64_t given = random.Integer(0, shape.rank());
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t dim = shape.dim(i);
    if (i >= given) {
      dims.push_back(dim);
      continue;
    }
    begin.push_back(random.Integer(-dim - 1, dim + 1));
    end.push_back(random.Integer(-dim - 1, dim + 1));
    strides.push_back(random.Coin() ? random.Integer(1, 3) : random.Integer(-3, -1));
    if (dim > 0 && random.Integer(0, 4) == 0) {
      begin.back() = random.Integer(-dim, dim - 1);
      shrink_mask |= int64_t{1} << i;
      continue;
    }
    if (random.Integer(0, 3) == 0) begin_mask |= int64_t{1} << i;
    if (random.Integer(0, 3) == 0) end_mask |= int64_t{1} << i;
    // What Python's slice.indices() does, counted one by one.
    const bool up = strides.back() > 0;
    const auto edge = [&](int64_t index) {
      if (index < 0) index += dim;
      return std::clamp(index, int64_t{up ? 0 : -1}, up ? dim : dim - 1);
    };
    const int64_t first = begin_mask >> i & 1 ? (up ? 0 : dim - 1) : edge(begin.back());
    const int64_t last = end_mask >> i & 1 ? (up ? dim : -1) : edge(end.back());
    int64_t count = 0;
    for (int64_t at = first; up ? at < last : at > last; at += strides.back()) ++count;
    dims.push_back(count);
  }
  *result = Shape(dims);
  return {{"begin", begin},           {"end", end},           {"strides", strides},
          {"begin_mask", begin_mask}, {"end_mask", end_mask}, {"shrink_mask", shrink_mask}};
}

OpCase StridedSliceCase(Random& random, DType real) {
  const Shape shape = RandomShape(random);
  Shape result;
  const AttrList attrs = StridedAttrs(random, shape, &result);
  return {{RandomTensor(random, real, shape)}, attrs};
}

OpCase StridedSliceGradCase(Random& random, DType real) {
  const Shape shape = RandomShape(random);
  Shape result;
  const AttrList attrs = StridedAttrs(random, shape, &result);
  return {{RandomTensor(random, real, result), IntegerVector(DimsOf(shape))}, attrs};
}

OpCase PadCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_elements = 500});
  Ints paddings;
  for (int i = 0; i < 2 * shape.rank(); ++i) paddings.push_back(random.Integer(0, 3));
  return {{RandomTensor(random, real, shape)},
          {{"paddings", paddings}, {"value", random.Coin() ? 0.0 : random.Uniform()}}};
}

OpCase PackCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_elements = 500});
  OpCase op_case;
  for (int64_t i = random.Integer(1, 5); i > 0; --i) {
    op_case.inputs.push_back(RandomTensor(random, real, shape));
  }
  op_case.attrs = {{"axis", RandomAxis(random, shape.rank() + 1)}};
  return op_case;
}

OpCase UnpackCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.min_rank = 1, .max_elements = 500});
  const int64_t axis = RandomAxis(random, shape.rank());
  const int64_t num = random.Integer(1, 5);
  return {{RandomTensor(random, real, shape.WithDim(int(axis), num))},
          {{"axis", axis}, {"num", num}}};
}

Ints RandomMultiples(Random& random, int rank) {
  Ints multiples;
  for (int i = 0; i < rank; ++i) multiples.push_back(random.Pick<int64_t>({0, 1, 1, 2, 3, 4}));
  return multiples;
}

OpCase TileCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_elements = 200});
  return {{RandomTensor(random, real, shape)},
          {{"multiples", RandomMultiples(random, shape.rank())}}};
}

OpCase TileGradCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_elements = 200});
  const Ints multiples = RandomMultiples(random, shape.rank());
  Shape whole = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    whole = whole.WithDim(i, shape.dim(i) * multiples[size_t(i)]);
  }
  return {{RandomTensor(random, real, whole), IntegerVector(DimsOf(shape))},
          {{"multiples", multiples}}};
}

OpCase ReverseCase(Random& random, DType real) {
  const Shape shape = RandomShape(random);
  Ints axes;
  for (int i = 0; i < shape.rank(); ++i) {
    if (random.Coin()) axes.push_back(random.Coin() ? i : i - shape.rank());
  }
  return {{RandomTensor(random, real, shape)}, {{"axes", axes}}};
}

}  // namespace

void AddArrangeSamples(SampleRegistry& samples) {
  samples.Add({.op = "Transpose", .make = TransposeCase});
  samples.Add({.op = "Concat", .make = ConcatCase});
  samples.Add({.op = "ConcatGrad", .make = ConcatGradCase});
  samples.Add({.op = "Split", .make = SplitCase});
  samples.Add({.op = "Slice", .make = SliceCase});
  samples.Add({.op = "SliceGrad", .make = SliceGradCase});
  samples.Add({.op = "StridedSlice", .make = StridedSliceCase});
  samples.Add({.op = "StridedSliceGrad", .make = StridedSliceGradCase});
  samples.Add({.op = "Pad", .make = PadCase});
  samples.Add({.op = "Pack", .make = PackCase});
  samples.Add({.op = "Unpack", .make = UnpackCase});
  samples.Add({.op = "Tile", .make = TileCase});
  samples.Add({.op = "TileGrad", .make = TileGradCase});
  samples.Add({.op = "Reverse", .make = ReverseCase});
}

}  // namespace tutti::testing
