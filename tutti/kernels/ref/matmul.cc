#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/accumulator.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

// One product of two matrices. `a` and `b` are read through (row, column) strides, which is all
// that a transpose is.
struct Product {
  int64_t m, n, k;
  int64_t a_row, a_column;
  int64_t b_row, b_column;
};

template <typename T>
void Multiply(const Product& p, const T* a, const T* b, T* c) {
  using Acc = Accumulator<T>;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      Acc sum{};
      for (int64_t l = 0; l < p.k; ++l) {
        sum += static_cast<Acc>(a[i * p.a_row + l * p.a_column]) *
               static_cast<Acc>(b[l * p.b_row + j * p.b_column]);
      }
      c[i * p.n + j] = static_cast<T>(sum);
    }
  }
}

// MatMul, and BatchMatMul: every leading dimension counts as batch.
absl::Status MatMulRef(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  Tensor& c = ctx.output(0);
  const bool ta = ctx.node->attr<bool>("transpose_a");
  const bool tb = ctx.node->attr<bool>("transpose_b");
  const int64_t a_columns = a.shape().dim(-1);
  const int64_t b_columns = b.shape().dim(-1);
  const Product p = {.m = c.shape().dim(-2),
                     .n = c.shape().dim(-1),
                     .k = a.shape().dim(ta ? -2 : -1),
                     .a_row = ta ? 1 : a_columns,
                     .a_column = ta ? a_columns : 1,
                     .b_row = tb ? 1 : b_columns,
                     .b_column = tb ? b_columns : 1};
  if (c.elements() == 0) return absl::OkStatus();  // of perhaps very many empty matrices
  const int64_t batch = ProductOf(c.shape().dims().first(size_t(c.shape().rank()) - 2));
  VisitDType(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) {
      for (int64_t i = 0; i < batch; ++i) {
        Multiply<T>(p, a.data<T>() + i * p.m * p.k, b.data<T>() + i * p.k * p.n,
                    c.data<T>() + i * p.m * p.n);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterMatMulRefKernels(KernelRegistry& registry) {
  std::vector<DType> numbers;
  for (const DType dtype : kAllDTypes) {
    if (dtype != kBool) numbers.push_back(dtype);
  }
  AddFunctionKernel(registry, "MatMul", "ref", MatMulRef, numbers);
  AddFunctionKernel(registry, "BatchMatMul", "ref", MatMulRef, numbers);
}

}  // namespace tutti
