#include <algorithm>
#include <map>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

using Ints = std::vector<int64_t>;

DType IndexType(Random& random) { return random.Pick<DType>({kInt32, kInt64}); }

Ints DimsOf(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

Shape Joined(const Ints& first, const Ints& second, const Ints& third = {}) {
  Ints dims = first;
  dims.insert(dims.end(), second.begin(), second.end());
  dims.insert(dims.end(), third.begin(), third.end());
  return Shape(dims);
}

// Params, indices into their `axis`, and what Gather makes of them.
struct Gathering {
  Shape params;
  int64_t axis;
  Tensor indices;
  Shape result;
};

Gathering RandomGathering(Random& random, bool first_axis) {
  Gathering g;
  g.params = RandomShape(random, {.min_rank = 1, .max_rank = 3, .max_elements = 500});
  const int rank = g.params.rank();
  const int axis = first_axis ? 0 : int(random.Integer(0, rank - 1));
  g.axis = random.Coin() ? axis : axis - rank;
  Shape indices = RandomShape(random, {.max_rank = 2, .max_elements = 20});
  if (g.params.dim(axis) == 0) indices = Shape{0, 3};
  g.indices = RandomIndices(random, IndexType(random), indices, g.params.dim(axis));
  const Ints dims = DimsOf(g.params);
  g.result = Joined({dims.begin(), dims.begin() + axis}, DimsOf(indices),
                    {dims.begin() + axis + 1, dims.end()});
  return g;
}

OpCase GatherCase(Random& random, DType real) {
  const Gathering g = RandomGathering(random, random.Coin());
  return {{RandomTensor(random, real, g.params), g.indices}, {{"axis", g.axis}}};
}

OpCase GatherGradCase(Random& random, DType real) {
  const Gathering g = RandomGathering(random, false);
  return {{RandomTensor(random, real, g.result), g.indices, IntegerVector(DimsOf(g.params))},
          {{"axis", g.axis}}};
}

// Rows of indices into the first `depth` dimensions of a shape.
struct Rows {
  Shape shape;
  Tensor indices;
  Shape slices;  // of all rows
};

Rows RandomRows(Random& random) {
  Rows rows{RandomShape(random, {.max_rank = 3, .min_dim = 1, .max_elements = 500}), {}, {}};
  const int depth = int(random.Integer(0, rows.shape.rank()));
  const Ints dims = DimsOf(rows.shape);
  const Shape outer = RandomShape(random, {.max_rank = 2, .max_elements = 20});
  Ints values;
  for (int64_t row = 0; row < outer.elements(); ++row) {
    for (int i = 0; i < depth; ++i) values.push_back(random.Integer(0, dims[size_t(i)] - 1));
  }
  rows.indices =
      IntegerVector(values, IndexType(random)).Reshape(Joined(DimsOf(outer), {int64_t(depth)}));
  rows.slices = Joined(DimsOf(outer), {dims.begin() + depth, dims.end()});
  return rows;
}

// x, and indices into its last dimension.
struct Last {
  Shape x;
  Tensor indices;
};

Last RandomLast(Random& random) {
  const Shape x = RandomShape(random, {.min_rank = 1, .max_rank = 3, .max_elements = 300});
  const int64_t count = x.dim(-1) == 0 ? 0 : random.Integer(0, 6);
  return {x, RandomIndices(random, IndexType(random), x.WithDim(-1, count), x.dim(-1))};
}

OpCase OneHotCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_rank = 3, .max_elements = 200});
  const int64_t depth = random.Integer(0, 9);
  // Some outside on both sides.
  const Tensor indices = RandomTensor(random, IndexType(random), shape, -2, double(depth) + 2);
  return {{indices},
          {{"depth", depth},
           {"axis", random.Integer(-shape.rank() - 1, shape.rank())},
           {"dtype", random.Coin() ? real : kInt32},
           {"on_value", random.Coin() ? 1.0 : 5.0},
           {"off_value", random.Coin() ? 0.0 : -1.0}}};
}

OpCase SegmentCase(Random& random, DType real) {
  const Shape ids = RandomShape(random, {.max_rank = 2, .max_elements = 40});
  const Shape slice = RandomShape(random, {.max_rank = 2, .max_elements = 100});
  const int64_t segments = random.Integer(1, 9);
  return {{RandomTensor(random, real, Joined(DimsOf(ids), DimsOf(slice))),
           RandomIndices(random, IndexType(random), ids, segments)},
          {{"num_segments", segments}}};
}

// Each value once, in the order in which they appear; and x can be put together again.
absl::Status CheckUnique(const OpCase& op_case, std::span<const Tensor> outputs) {
  const auto x = op_case.inputs[0].values<int32_t>();
  const auto values = outputs[0].values<int32_t>();
  const auto indices = outputs[1].values<int64_t>();
  const auto counts = outputs[2].values<int64_t>();
  std::map<int32_t, int64_t> times;
  std::vector<int32_t> order;
  for (size_t i = 0; i < x.size(); ++i) {
    if (times[x[i]]++ == 0) order.push_back(x[i]);
    if (values[size_t(indices[i])] != x[i]) return Internal("x[{}] is not values[indices]", i);
  }
  if (!std::equal(order.begin(), order.end(), values.begin(), values.end())) {
    return Internal("the values are not in the order in which they appear");
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (counts[i] != times[order[i]]) return Internal("counts[{}] is {}", i, counts[i]);
  }
  return absl::OkStatus();
}

OpCase TopKCase(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.min_rank = 1, .max_rank = 3});
  const int64_t k = random.Integer(0, std::min<int64_t>(shape.dim(-1), 20));
  return {{RandomDistinct(random, real, shape, 100)}, {{"k", k}}, {}, {0}};
}

absl::Status CheckTopK(const OpCase& op_case, std::span<const Tensor> outputs) {
  const Tensor& x = op_case.inputs[0];
  if (x.dtype() != kFloat32 || outputs[0].elements() == 0) return absl::OkStatus();
  const int64_t width = x.shape().dim(-1);
  const int64_t k = outputs[0].shape().dim(-1);
  for (int64_t row = 0; row < x.elements() / width; ++row) {
    const float* first = x.data<float>() + row * width;
    std::vector<float> sorted(first, first + width);
    std::sort(sorted.rbegin(), sorted.rend());
    for (int64_t i = 0; i < k; ++i) {
      const float value = outputs[0].data<float>()[row * k + i];
      const int64_t index = outputs[1].data<int64_t>()[row * k + i];
      if (value != sorted[size_t(i)] || first[index] != value) {
        return Internal("value {} of row {} is {}", i, row, value);
      }
    }
  }
  return absl::OkStatus();
}

OpCase PartitionCase(Random& random, DType real) {
  const Shape partitions = RandomShape(random, {.max_rank = 2, .max_elements = 40});
  const Shape slice = RandomShape(random, {.max_rank = 2, .max_elements = 50});
  const int64_t num = random.Integer(1, 5);
  return {{RandomTensor(random, real, Joined(DimsOf(partitions), DimsOf(slice))),
           RandomIndices(random, IndexType(random), partitions, num)},
          {{"num_partitions", num}}};
}

// Indices that repeat now and then, and leave rows out.
std::vector<Tensor> RandomPlaces(Random& random) {
  std::vector<Tensor> places;
  const DType dtype = IndexType(random);
  for (int64_t i = random.Integer(1, 3); i > 0; --i) {
    const Shape shape = RandomShape(random, {.max_rank = 2, .max_elements = 12});
    places.push_back(RandomIndices(random, dtype, shape, 20));
  }
  return places;
}

OpCase StitchCase(Random& random, DType real) {
  const Shape slice = RandomShape(random, {.max_rank = 2, .max_elements = 30});
  OpCase op_case{RandomPlaces(random)};
  const size_t count = op_case.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    op_case.inputs.push_back(
        RandomTensor(random, real, Joined(DimsOf(op_case.inputs[i].shape()), DimsOf(slice))));
  }
  return op_case;
}

OpCase StitchGradCase(Random& random, DType real) {
  const Shape slice = RandomShape(random, {.max_rank = 2, .max_elements = 30});
  OpCase op_case{{{}}};
  int64_t rows = 0;
  for (const Tensor& places : RandomPlaces(random)) {
    op_case.inputs.push_back(places);
    for (int64_t i = 0; i < places.elements(); ++i) {
      rows = std::max(rows, 1 + (places.dtype() == kInt32 ? places.data<int32_t>()[i]
                                                          : places.data<int64_t>()[i]));
    }
  }
  op_case.inputs[0] = RandomTensor(random, real, Joined({rows}, DimsOf(slice)));
  return op_case;
}

}  // namespace

void AddGatherSamples(SampleRegistry& samples) {
  samples.Add({.op = "Gather", .make = GatherCase});
  samples.Add({.op = "GatherGrad", .make = GatherGradCase});
  samples.Add({.op = "GatherNd", .make = [](Random& random, DType real) {
                 const Rows rows = RandomRows(random);
                 return OpCase{{RandomTensor(random, real, rows.shape), rows.indices}};
               }});
  samples.Add({.op = "ScatterNd", .make = [](Random& random, DType real) {
                 const Rows rows = RandomRows(random);
                 return OpCase{{rows.indices, RandomTensor(random, real, rows.slices),
                                IntegerVector(DimsOf(rows.shape), IndexType(random))}};
               }});
  samples.Add({.op = "GatherLast", .make = [](Random& random, DType real) {
                 const Last last = RandomLast(random);
                 return OpCase{{RandomTensor(random, real, last.x), last.indices}};
               }});
  samples.Add({.op = "GatherLastGrad", .make = [](Random& random, DType real) {
                 const Last last = RandomLast(random);
                 return OpCase{{RandomTensor(random, real, last.indices.shape()), last.indices,
                                IntegerVector(DimsOf(last.x))}};
               }});
  samples.Add({.op = "OneHot", .make = OneHotCase});
  samples.Add({.op = "UnsortedSegmentSum", .make = SegmentCase});
  samples.Add({.op = "Unique",
               .make =
                   [](Random& random, DType) {
                     return OpCase{{RandomTensor(random, kInt32, {RandomDim(random)}, -10, 10)}};
                   },
               .check = CheckUnique});
  samples.Add({.op = "TopK", .make = TopKCase, .check = CheckTopK});
  samples.Add({.op = "DynamicPartition", .make = PartitionCase});
  samples.Add({.op = "DynamicStitch", .make = StitchCase});
  samples.Add({.op = "DynamicStitchGrad", .make = StitchGradCase});
}

}  // namespace tutti::testing
