// Products of float32 matrices by oneDNN's GEMM.
//
// Of oneDNN 2.6's three ways to multiply (matmul, inner_product, sgemm), all end in the same jitted
// GEMM on AVX2; sgemm is the one without descriptors: 0.5 us less a call, which is a quarter of a
// [32, 100] x [100, 10] product. A batch is split over the cores matrix by matrix.
#include <mutex>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/fused_matrix.h"
#include "tutti/kernels/cpu/gemm.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

class MatMulKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    transpose_a_ = ctx.node().attr<bool>("transpose_a");
    transpose_b_ = ctx.node().attr<bool>("transpose_b");
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    const Shape& c = ctx.output(0).shape();
    const Gemm gemm = GemmOf(ctx.input(0).shape(), c);
    if (c.elements() == 0) return absl::OkStatus();  // of perhaps very many empty matrices
    const int64_t batch = ProductOf(c.dims().first(size_t(c.rank()) - 2));
    const float* a_data = ctx.input(0).data<float>();
    const float* b_data = ctx.input(1).data<float>();
    float* c_data = ctx.output(0).data<float>();
    if (batch == 1) return gemm.Run(a_data, b_data, c_data);
    std::mutex mutex;
    absl::Status status;
    // A share of at least about 20 us of work is worth a second core.
    const int64_t work = gemm.m * gemm.n * gemm.k + 1;
    ctx.team().ParallelFor(batch, 1 + 800000 / work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const absl::Status one =
            gemm.Run(a_data + i * gemm.m * gemm.k, b_data + i * gemm.k * gemm.n,
                     c_data + i * gemm.m * gemm.n);
        if (!one.ok()) {
          const std::lock_guard lock(mutex);
          status = one;
        }
      }
    });
    return status;
  }

 private:
  Gemm GemmOf(const Shape& a, const Shape& c) const {
    return {.m = c.dim(-2),
            .n = c.dim(-1),
            .k = a.dim(transpose_a_ ? -2 : -1),
            .transpose_a = transpose_a_,
            .transpose_b = transpose_b_};
  }

  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

}  // namespace

void RegisterMatMulCpuKernels(KernelRegistry& registry) {
  AddKernel<MatMulKernel>(registry, "MatMul", "cpu", {kFloat32});
  AddKernel<MatMulKernel>(registry, "BatchMatMul", "cpu", {kFloat32});
  RegisterFusedMatrixCpuKernels(registry);
  RegisterMatMulDescentCpuKernel(registry);
}

}  // namespace tutti
