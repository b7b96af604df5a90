#include "tutti/kernels/cpu/gemm.h"
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

// One of the three kinds of product that the CPU multiplies through packed panels. Small ones where
// gradients are compared with differences, which multiply a hundred times.
OpCase PackedProduct(Random& random, DType real) {
  if (real == kFloat64) return Product(random, real, Shape{});
  int64_t m = random.Integer(1, 3), n = random.Integer(1, 3), k = random.Integer(512, 530);
  bool transpose_a = false, transpose_b = false;
  switch (random.Integer(0, 2)) {
    case 0:
      n = 1024;
      break;
    case 1:
      transpose_a = true;
      (random.Coin() ? m : n) = 1024;
      break;
    default:
      transpose_b = true;
      m += 512;
      k = 1024;
  }
  return {{RandomTensor(random, real, Matrix(Shape{}, m, k, transpose_a)),
           RandomTensor(random, real, Matrix(Shape{}, k, n, transpose_b))},
          {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}};
}

// Should the CPU choose the shapes to pack by another rule, the sample has to follow.
absl::Status CheckIsPacked(const OpCase& op_case, std::span<const Tensor> outputs) {
  const Shape& a = op_case.inputs[0].shape();
  Gemm gemm{.m = outputs[0].shape().dim(0), .n = outputs[0].shape().dim(1)};
  for (const auto& [name, value] : op_case.attrs) {
    if (name == "transpose_a") gemm.transpose_a = std::get<bool>(value);
    if (name == "transpose_b") gemm.transpose_b = std::get<bool>(value);
  }
  gemm.k = a.dim(gemm.transpose_a ? 0 : 1);
  return gemm.Packs() ? absl::OkStatus() : Internal("the product does not reach the packed GEMM");
}

}  // namespace

void AddMatMulSamples(SampleRegistry& samples) {
  samples.Add({.op = "MatMul", .make = PackedProduct, .check = CheckIsPacked});
  samples.Add({.op = "MatMul",
               .make = [](Random& random, DType real) { return Product(random, real, Shape{}); }});
  samples.Add({.op = "BatchMatMul", .make = [](Random& random, DType real) {
                 return Product(random, real,
                                RandomShape(random, {.max_rank = 2, .max_elements = 9}));
               }});
}

}  // namespace tutti::testing
