// A dense or depthwise convolution is y[n, o, c'] = sum over taps and channels of x[n, i, c] *
// filter[tap, ...], and its backward ops are the same triple loop with another of the three being
// summed. One walk over all (x element, filter element, y element) triples serves all of them.
#include "tutti/device/device.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/kernels/ref/accumulator.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/run_time_shape.h"

namespace tutti {
namespace {

struct ConvSizes {
  int64_t batch, in_channels, out_channels;
  Window window;
};

// The position in the image of tap `t` of output `o`, or -1 in the padding.
int64_t ImageIndex(const WindowDim& dim, int64_t o, int64_t t) {
  const int64_t i = o * dim.stride - dim.pad_before + t * dim.dilation;
  return i >= 0 && i < dim.input ? i : -1;
}

// Calls visit(x_index, filter_index, y_index) for the spatial taps of every output pixel, with the
// indices of channel 0.
template <typename Visit>
void ForEachTap(const ConvSizes& s, int64_t filter_pixel, Visit visit) {
  const WindowDim& h = s.window.height;
  const WindowDim& w = s.window.width;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t oh = 0; oh < h.output; ++oh) {
      for (int64_t ow = 0; ow < w.output; ++ow) {
        const int64_t y = ((n * h.output + oh) * w.output + ow) * s.out_channels;
        for (int64_t th = 0; th < h.window; ++th) {
          const int64_t ih = ImageIndex(h, oh, th);
          if (ih < 0) continue;
          for (int64_t tw = 0; tw < w.window; ++tw) {
            const int64_t iw = ImageIndex(w, ow, tw);
            if (iw < 0) continue;
            const int64_t x = ((n * h.input + ih) * w.input + iw) * s.in_channels;
            visit(x, (th * w.window + tw) * filter_pixel, y);
          }
        }
      }
    }
  }
}

// Calls visit(x_index, filter_index, y_index) for every product of the convolution.
template <typename Visit>
void ForEachProduct(const ConvSizes& s, bool depthwise, Visit visit) {
  if (depthwise) {
    const int64_t multiplier = s.in_channels == 0 ? 0 : s.out_channels / s.in_channels;
    ForEachTap(s, s.out_channels, [&](int64_t x, int64_t f, int64_t y) {
      for (int64_t c = 0; c < s.in_channels; ++c) {
        for (int64_t m = 0; m < multiplier; ++m) {
          visit(x + c, f + c * multiplier + m, y + c * multiplier + m);
        }
      }
    });
    return;
  }
  ForEachTap(s, s.in_channels * s.out_channels, [&](int64_t x, int64_t f, int64_t y) {
    for (int64_t i = 0; i < s.in_channels; ++i) {
      for (int64_t o = 0; o < s.out_channels; ++o) {
        visit(x + i, f + i * s.out_channels + o, y + o);
      }
    }
  });
}

// Which of the three is computed from the other two, and which inputs those are.
enum class Wanted { kOutput, kInput, kFilter };

template <typename T>
void Convolve(const ConvSizes& s, bool depthwise, Wanted wanted, const T* first, const T* second,
              Tensor& result) {
  using Acc = Accumulator<T>;
  std::vector<Acc> sums(size_t(result.elements()), Acc{});
  ForEachProduct(s, depthwise, [&](int64_t x, int64_t f, int64_t y) {
    switch (wanted) {
      case Wanted::kOutput:  // x, filter
        sums[y] += static_cast<Acc>(first[x]) * static_cast<Acc>(second[f]);
        break;
      case Wanted::kInput:  // filter, dy
        sums[x] += static_cast<Acc>(first[f]) * static_cast<Acc>(second[y]);
        break;
      case Wanted::kFilter:  // x, dy
        sums[f] += static_cast<Acc>(first[x]) * static_cast<Acc>(second[y]);
        break;
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) result.data<T>()[i] = static_cast<T>(sums[i]);
}

// `x`, `filter` and `y` are the tensors in those roles; the wanted one is the output.
absl::Status Run(KernelContext& ctx, bool depthwise, Wanted wanted, const Tensor& x,
                 const Tensor& filter, const Tensor& y, const Tensor& first, const Tensor& second) {
  ConvSizes sizes = {.batch = x.shape().dim(0),
                     .in_channels = x.shape().dim(3),
                     .out_channels = y.shape().dim(3),
                     .window = {}};
  TUTTI_ASSIGN_OR_RETURN(sizes.window, ConvWindow(*ctx.node, x.shape(), filter.shape()));
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<Accumulator<T>>) {
      Convolve<T>(sizes, depthwise, wanted, first.template data<T>(), second.template data<T>(),
                  ctx.output(0));
    }
  });
  return absl::OkStatus();
}

template <bool kDepthwise>
absl::Status Forward(KernelContext& ctx) {
  return Run(ctx, kDepthwise, Wanted::kOutput, ctx.input(0), ctx.input(1), ctx.output(0),
             ctx.input(0), ctx.input(1));
}

template <bool kDepthwise>
absl::Status OfInput(KernelContext& ctx) {
  return Run(ctx, kDepthwise, Wanted::kInput, ctx.output(0), ctx.input(0), ctx.input(1),
             ctx.input(0), ctx.input(1));
}

template <bool kDepthwise>
absl::Status OfFilter(KernelContext& ctx) {
  return Run(ctx, kDepthwise, Wanted::kFilter, ctx.input(0), ctx.output(0), ctx.input(1),
             ctx.input(0), ctx.input(1));
}

absl::Status Transpose(KernelContext& ctx) {
  return Run(ctx, false, Wanted::kInput, ctx.output(0), ctx.input(1), ctx.input(0), ctx.input(1),
             ctx.input(0));
}

// A reference kernel whose last input is the shape of its output.
void AddShapedRef(KernelRegistry& registry, std::string op, absl::Status (*compute)(KernelContext&),
                  std::vector<DType> dtypes) {
  class FromFunction final : public Kernel {
   public:
    explicit FromFunction(absl::Status (*compute)(KernelContext&)) : compute_(compute) {}
    absl::Status Compute(KernelContext& ctx) override { return compute_(ctx); }

   private:
    absl::Status (*compute_)(KernelContext&);
  };
  registry.Add({.op = std::move(op), .kind = "ref", .dtypes = std::move(dtypes), .make = [compute] {
                  return WithRunTimeShape(std::make_unique<FromFunction>(compute), 2);
                }});
}

absl::Status BiasAddRef(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const int64_t channels = x.shape().dim(-1);
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    const T* bias = ctx.input(1).data<T>();
    for (int64_t i = 0; i < x.elements(); ++i) {
      ctx.output(0).data<T>()[i] =
          static_cast<T>(static_cast<Acc>(x.data<T>()[i]) + static_cast<Acc>(bias[i % channels]));
    }
  });
  return absl::OkStatus();
}

absl::Status BiasAddGradRef(KernelContext& ctx) {
  const Tensor& dy = ctx.input(0);
  const int64_t channels = dy.shape().dim(-1);
  VisitDType(dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    for (int64_t c = 0; c < channels; ++c) {
      Acc sum{};
      for (int64_t i = c; i < dy.elements(); i += channels)
        sum += static_cast<Acc>(dy.data<T>()[i]);
      ctx.output(0).data<T>()[c] = static_cast<T>(sum);
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterConvRefKernels(KernelRegistry& registry) {
  const std::vector<DType> reals = {kFloat16, kBFloat16, kFloat32, kFloat64};
  std::vector<DType> numbers;
  for (const DType dtype : kAllDTypes) {
    if (dtype != kBool) numbers.push_back(dtype);
  }
  AddFunctionKernel(registry, "BiasAdd", "ref", BiasAddRef, numbers, {{0, 0}});
  AddFunctionKernel(registry, "BiasAddGrad", "ref", BiasAddGradRef, numbers);
  AddFunctionKernel(registry, "Conv2D", "ref", Forward<false>, reals);
  AddShapedRef(registry, "Conv2DBackpropInput", OfInput<false>, reals);
  AddShapedRef(registry, "Conv2DBackpropFilter", OfFilter<false>, reals);
  AddFunctionKernel(registry, "DepthwiseConv2D", "ref", Forward<true>, reals);
  AddShapedRef(registry, "DepthwiseConv2DBackpropInput", OfInput<true>, reals);
  AddShapedRef(registry, "DepthwiseConv2DBackpropFilter", OfFilter<true>, reals);
  AddFunctionKernel(registry, "Conv2DTranspose", "ref", Transpose, reals);
}

}  // namespace tutti
