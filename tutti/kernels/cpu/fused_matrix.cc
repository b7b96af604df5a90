// MatMul with bias and activation: oneDNN's matmul with the bias and one pass for the activation,
// or, where our own Gemm knows a faster way, that and one pass for bias and Relu. And _Reorder.
//
// The activation is the loop of its own op and not a post-op, because eltwise_relu and eltwise_clip
// of oneDNN turn NaN into a number. The pass reads what was just written: m * n elements beside the
// m * n * k products.
#include "tutti/kernels/cpu/fused_matrix.h"

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/bias.h"
#include "tutti/kernels/cpu/gemm.h"
#include "tutti/kernels/cpu/onednn.h"
#include "tutti/kernels/cpu/vector_loops.h"

namespace tutti {
namespace {

using dnnl::memory;

// [rows, columns], or the memory of [columns, rows] seen as that.
memory::desc MatrixDesc(int64_t rows, int64_t columns, bool transposed) {
  return memory::desc({rows, columns}, memory::data_type::f32,
                      transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
}

class FusedMatMulKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    const Shape& a = ctx.input(0).shape;
    const Shape& c = ctx.output(0).shape;
    if (!a.IsFullyKnown() || !c.IsFullyKnown()) return absl::OkStatus();
    const bool ta = ctx.node().attr<bool>("transpose_a");
    const bool tb = ctx.node().attr<bool>("transpose_b");
    const int64_t m = c[0], n = c[1], k = a[ta ? 0 : 1];
    has_bias_ = ctx.num_inputs() == 3;
    const std::string& activation = ctx.node().attr<std::string>("activation");
    relu_ = activation == "Relu";
    activation_ = activation.empty() ? nullptr : FindVectorLoops(activation);
    gemm_ = {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb};
    by_gemm_ = has_bias_ && (relu_ || activation.empty()) && gemm_.Packs();
    if (by_gemm_) {
      return absl::OkStatus();
    }
    return onednn::Guard([&] {
      const memory::desc a_desc = MatrixDesc(m, k, ta);
      const memory::desc b_desc = MatrixDesc(k, n, tb);
      const memory::desc c_desc = MatrixDesc(m, n, false);
      const memory::desc bias_desc({1, n}, memory::data_type::f32, memory::dims{n, 1});
      const dnnl::matmul::desc desc = has_bias_
                                          ? dnnl::matmul::desc(a_desc, b_desc, bias_desc, c_desc)
                                          : dnnl::matmul::desc(a_desc, b_desc, c_desc);
      const dnnl::matmul::primitive_desc pd(desc, onednn::Attr(), onednn::Engine());
      primitive_ = dnnl::matmul(pd);
      const auto empty = [](const memory::desc& d) { return memory(d, onednn::Engine(), nullptr); };
      args_ = {{DNNL_ARG_SRC, empty(a_desc)},
               {DNNL_ARG_WEIGHTS, empty(b_desc)},
               {DNNL_ARG_DST, empty(c_desc)},
               {DNNL_ARG_SCRATCHPAD, empty(pd.scratchpad_desc())}};
      if (has_bias_) args_[DNNL_ARG_BIAS] = empty(bias_desc);
      ctx.SetScratchBytes(pd.scratchpad_desc().get_size());
    });
  }

  absl::Status Compute(KernelContext& ctx) override {
    if (by_gemm_) {
      float* c = ctx.output(0).data<float>();
      TUTTI_RETURN_IF_ERROR(gemm_.Run(ctx.input(0).data<float>(), ctx.input(1).data<float>(), c));
      AddBiasToRows(ctx.team(), c, ctx.input(2).data<float>(), c, gemm_.m, gemm_.n, relu_);
      return absl::OkStatus();
    }
    TUTTI_RETURN_IF_ERROR(Multiply(ctx));
    if (activation_ != nullptr) Activate(ctx);
    return absl::OkStatus();
  }

 private:
  absl::Status Multiply(KernelContext& ctx) {
    return onednn::Guard([&] {
      const auto set = [&](int arg, const void* data) {
        args_.find(arg)->second.set_data_handle(const_cast<void*>(data));
      };
      set(DNNL_ARG_SRC, ctx.input(0).raw());
      set(DNNL_ARG_WEIGHTS, ctx.input(1).raw());
      if (has_bias_) set(DNNL_ARG_BIAS, ctx.input(2).raw());
      set(DNNL_ARG_DST, ctx.output(0).raw());
      set(DNNL_ARG_SCRATCHPAD, ctx.scratch().data());
      primitive_.execute(onednn::Stream(), args_);
    });
  }

  void Activate(KernelContext& ctx) const {
    float* const c = ctx.output(0).data<float>();
    ctx.team().ParallelFor(gemm_.m * gemm_.n, activation_->grain, [&](int64_t begin, int64_t end) {
      activation_->unary(c + begin, c + begin, end - begin, {});
    });
  }

  bool has_bias_ = false;
  bool relu_ = false;
  bool by_gemm_ = false;
  const VectorLoops* activation_ = nullptr;  // what follows the product; null for nothing
  Gemm gemm_;
  dnnl::matmul primitive_;
  std::unordered_map<int, memory> args_;
};

// From the layout of the input to that of the output.
class ReorderKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    if (!ctx.input(0).shape.IsFullyKnown()) return absl::OkStatus();
    return onednn::Guard([&] {
      from_ = memory(onednn::ImageDesc(ctx.input(0).shape, ctx.input_layout(0)), onednn::Engine(),
                     nullptr);
      to_ = memory(onednn::ImageDesc(ctx.input(0).shape, ctx.output_layout(0)), onednn::Engine(),
                   nullptr);
      primitive_ = dnnl::reorder(from_, to_);
    });
  }

  absl::Status Compute(KernelContext& ctx) override {
    return onednn::Guard([&] {
      from_.set_data_handle(const_cast<void*>(ctx.input(0).raw()));
      to_.set_data_handle(ctx.output(0).raw());
      primitive_.execute(onednn::Stream(), from_, to_);
    });
  }

 private:
  memory from_, to_;
  dnnl::reorder primitive_;
};

}  // namespace

void RegisterFusedMatrixCpuKernels(KernelRegistry& registry) {
  AddKernel<FusedMatMulKernel>(registry, "_FusedMatMul", "cpu", {kFloat32});
  AddKernel<ReorderKernel>(registry, "_Reorder", "cpu", {kFloat32});
}

}  // namespace tutti
