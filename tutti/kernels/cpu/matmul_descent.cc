// A step of gradient descent whose gradient is a product: one GEMM that adds to the variable.
#include "tutti/kernels/cpu/fused_matrix.h"
#include "tutti/kernels/cpu/gemm.h"
#include "tutti/kernels/update/variable_access.h"

namespace tutti {
namespace {

class MatMulDescentKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(ctx.node().input(0), ctx.device()));
    declared_ = ctx.input(0);
    transpose_a_ = ctx.node().attr<bool>("transpose_a");
    transpose_b_ = ctx.node().attr<bool>("transpose_b");
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(2);
    const Tensor& b = ctx.input(3);
    float rate = ctx.input(1).scalar<float>();
    if (ctx.num_inputs() > 4) rate *= ctx.input(4).scalar<float>();
    return state_->Modify([&](Tensor& value) -> absl::Status {
      TUTTI_RETURN_IF_ERROR(CheckDeclared(*state_, value, declared_));
      const Gemm gemm{.m = value.shape().dim(0),
                      .n = value.shape().dim(1),
                      .k = a.shape().dim(transpose_a_ ? 0 : 1),
                      .transpose_a = transpose_a_,
                      .transpose_b = transpose_b_,
                      .alpha = -rate,
                      .accumulate = true};
      // A rate of 0 leaves the variable untouched, whatever the gradient holds.
      if (rate != 0) {
        TUTTI_RETURN_IF_ERROR(gemm.Run(a.data<float>(), b.data<float>(), value.data<float>()));
      }
      if (ctx.output_consumed(0)) ctx.SetOutput(0, value);
      return absl::OkStatus();
    });
  }

 private:
  std::shared_ptr<VariableState> state_;
  ValueType declared_;
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

}  // namespace

void RegisterMatMulDescentCpuKernel(KernelRegistry& registry) {
  AddKernel<MatMulDescentKernel>(registry, "_MatMulDescent", "cpu", {kFloat32});
}

}  // namespace tutti
