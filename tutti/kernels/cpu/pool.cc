// Pooling in float32: the kernels around the loops of pool_loops.h.
#include <algorithm>

#include "tutti/device/device.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/kernels/cpu/onednn.h"
#include "tutti/kernels/cpu/pool_loops.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/shape/run_time_shape.h"

namespace tutti {
namespace {

// What all pooling kernels prepare: the window, and how memory divides into images.
class PoolKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) final {
    const Shape& x = ShapeOfX(ctx);
    if (!x.IsFullyKnown()) return absl::OkStatus();
    TUTTI_ASSIGN_OR_RETURN(window_, WindowOf(ctx.node(), x));
    const int block = onednn::ChannelBlock(LayoutOfX(ctx));
    inner_ = block > 0 ? block : x.dim(3);
    images_ = inner_ == 0 ? 0 : x.dim(0) * x.dim(3) / inner_;
    // A share of at least 64 KB is worth a second core.
    const int64_t image = window_.height.input * window_.width.input * inner_;
    grain_ = 1 + 16384 / std::max<int64_t>(image, 1);
    return absl::OkStatus();
  }

 protected:
  virtual const Shape& ShapeOfX(const PrepareContext& ctx) const { return ctx.input(0).shape; }
  virtual Layout LayoutOfX(const PrepareContext& ctx) const { return ctx.input_layout(0); }
  virtual absl::StatusOr<Window> WindowOf(const Node& node, const Shape& x) const {
    return PoolWindow(node, x);
  }

  template <typename Body>
  absl::Status ForImages(KernelContext& ctx, const Body& body) const {
    ctx.team().ParallelFor(images_, grain_, body);
    return absl::OkStatus();
  }

  Window window_;
  int64_t inner_ = 0;
  int64_t images_ = 0;
  int64_t grain_ = 1;
};

// One window that covers the image.
Window WholeImage(const Shape& x) {
  const auto whole = [](int64_t size) {
    return WindowDim{
        .input = size, .window = size, .stride = std::max<int64_t>(size, 1), .output = 1};
  };
  return {whole(x.dim(1)), whole(x.dim(2))};
}

// From one image to another, window by window: from x to y, or from dy to dx where `kToX`.
template <auto kLoop, bool kGlobal = false, bool kToX = false>
class OneImageKernel final : public PoolKernel {
 public:
  absl::Status Compute(KernelContext& ctx) override {
    return ForImages(ctx, [&](int64_t begin, int64_t end) {
      kLoop(window_, inner_, ctx.input(0).data<float>(), ctx.output(0).data<float>(), begin, end);
    });
  }

 protected:
  const Shape& ShapeOfX(const PrepareContext& ctx) const override {
    return kToX ? ctx.output(0).shape : ctx.input(0).shape;
  }
  Layout LayoutOfX(const PrepareContext& ctx) const override {
    return kToX ? ctx.output_layout(0) : ctx.input_layout(0);
  }
  absl::StatusOr<Window> WindowOf(const Node& node, const Shape& x) const override {
    if (kGlobal) return WholeImage(x);
    return PoolWindow(node, x);
  }
};

class MaxPoolGradKernel final : public PoolKernel {
 public:
  absl::Status Compute(KernelContext& ctx) override {
    return ForImages(ctx, [&](int64_t begin, int64_t end) {
      MaxPoolGradImages(window_, inner_, ctx.input(0).data<float>(), ctx.input(1).data<float>(),
                        ctx.input(2).data<float>(), ctx.output(0).data<float>(), begin, end);
    });
  }
};

class MaxPoolWithPositionsKernel final : public PoolKernel {
 public:
  absl::Status Compute(KernelContext& ctx) override {
    return ForImages(ctx, [&](int64_t begin, int64_t end) {
      MaxPoolWithPositionsImages(window_, inner_, ctx.input(0).data<float>(),
                                 ctx.output(0).data<float>(), ctx.output(1).data<uint8_t>(), begin,
                                 end);
    });
  }
};

class MaxPoolGradWithPositionsKernel final : public PoolKernel {
 public:
  absl::Status Compute(KernelContext& ctx) override {
    return ForImages(ctx, [&](int64_t begin, int64_t end) {
      MaxPoolGradWithPositionsImages(window_, inner_, ctx.input(1).data<uint8_t>(),
                                     ctx.input(0).data<float>(), ctx.output(0).data<float>(), begin,
                                     end);
    });
  }

 protected:
  const Shape& ShapeOfX(const PrepareContext& ctx) const override { return ctx.output(0).shape; }
  Layout LayoutOfX(const PrepareContext& ctx) const override { return ctx.output_layout(0); }
};

template <typename K>
void Add(KernelRegistry& registry, std::string op, bool shape_is_input = false) {
  registry.Add({.op = std::move(op),
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [=]() -> std::unique_ptr<Kernel> {
                  if (!shape_is_input) return std::make_unique<K>();
                  return WithRunTimeShape(std::make_unique<K>(), 1);
                },
                .image_layouts = true});
}

}  // namespace

void RegisterPoolCpuKernels(KernelRegistry& registry) {
  Add<OneImageKernel<MaxPoolImages>>(registry, "MaxPool");
  Add<MaxPoolGradKernel>(registry, "MaxPoolGrad");
  Add<MaxPoolWithPositionsKernel>(registry, "_MaxPoolWithPositions");
  Add<MaxPoolGradWithPositionsKernel>(registry, "_MaxPoolGradWithPositions");
  Add<OneImageKernel<AvgPoolImages>>(registry, "AvgPool");
  Add<OneImageKernel<AvgPoolGradImages, false, true>>(registry, "AvgPoolGrad", true);
  // A blocked image pools to [n, channels] in the very order of row-major, so any layout will do.
  Add<OneImageKernel<AvgPoolImages, true>>(registry, "GlobalAvgPool");
  Add<OneImageKernel<AvgPoolGradImages, true, true>>(registry, "GlobalAvgPoolGrad", true);
}

}  // namespace tutti
