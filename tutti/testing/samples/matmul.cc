#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// [..., rows, columns], or its transpose.
Shape Matrix(const Shape& batch, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  std::vector<int64_t> dims(batch.dims().begin(), batch.dims().end());
  dims.push_back(rows);
  dims.push_back(columns);
  return Shape(dims);
}

OpCase Product(Random& random, DType real, const Shape& batch) {
  const int64_t m = RandomDim(random), k = RandomDim(random), n = RandomDim(random, 0, 33);
  const bool transpose_a = random.Coin(), transpose_b = random.Coin();
  return {{RandomTensor(random, real, Matrix(batch, m, k, transpose_a)),
           RandomTensor(random, real, Matrix(batch, k, n, transpose_b))},
          {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}};
}

}  // namespace

void AddMatMulSamples(SampleRegistry& samples) {
  samples.Add({.op = "MatMul",
               .make = [](Random& random, DType real) { return Product(random, real, Shape{}); }});
  samples.Add({.op = "BatchMatMul", .make = [](Random& random, DType real) {
                 return Product(random, real,
                                RandomShape(random, {.max_rank = 2, .max_elements = 9}));
               }});
}

}  // namespace tutti::testing
