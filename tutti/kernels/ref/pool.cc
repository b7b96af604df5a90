#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/kernels/ref/accumulator.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/run_time_shape.h"

namespace tutti {
namespace {

// Calls begin(y_index), then tap(x_index) for what the window holds of the image, in row-major
// order, then end(y_index), for every element of y.
template <typename Begin, typename Tap, typename End>
void ForEachWindow(const Window& window, int64_t batch, int64_t channels, Begin begin, Tap tap,
                   End end) {
  const WindowDim& h = window.height;
  const WindowDim& w = window.width;
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t oh = 0; oh < h.output; ++oh) {
      for (int64_t ow = 0; ow < w.output; ++ow) {
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t y = ((n * h.output + oh) * w.output + ow) * channels + c;
          begin(y);
          const int64_t h_start = oh * h.stride - h.pad_before;
          const int64_t w_start = ow * w.stride - w.pad_before;
          const int64_t h_end = std::min(h.input, h_start + h.window);
          const int64_t w_end = std::min(w.input, w_start + w.window);
          for (int64_t ih = std::max<int64_t>(0, h_start); ih < h_end; ++ih) {
            for (int64_t iw = std::max<int64_t>(0, w_start); iw < w_end; ++iw) {
              tap(((n * h.input + ih) * w.input + iw) * channels + c);
            }
          }
          end(y);
        }
      }
    }
  }
}

template <typename Body>
void VisitReal(DType dtype, Body body) {
  VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<Accumulator<T>>) body(tag);
  });
}

// The index in x of each window's first maximum goes to use(y_index, x_index).
template <typename T, typename Use>
void ForEachMaximum(const Window& window, const Tensor& x, Use use) {
  int64_t where = -1;
  ForEachWindow(
      window, x.shape().dim(0), x.shape().dim(3), [&](int64_t) { where = -1; },
      [&](int64_t i) {
        const auto value = static_cast<Accumulator<T>>(x.data<T>()[i]);
        if (where < 0) {
          where = i;
          return;
        }
        const auto best = static_cast<Accumulator<T>>(x.data<T>()[where]);
        if (value > best || (std::isnan(value) && !std::isnan(best))) where = i;
      },
      [&](int64_t y) { use(y, where); });
}

// Sums for the elements of a tensor, which are rounded once, at the end.
template <typename T>
class Sums {
 public:
  explicit Sums(Tensor& tensor) : tensor_(tensor), sums_(size_t(tensor.elements())) {}
  ~Sums() {
    for (size_t i = 0; i < sums_.size(); ++i) tensor_.data<T>()[i] = static_cast<T>(sums_[i]);
  }
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  void Add(int64_t i, Accumulator<T> value) { sums_[size_t(i)] += value; }

 private:
  Tensor& tensor_;
  std::vector<Accumulator<T>> sums_;
};

// What input kFrom, shaped like x, holds where x has its maxima: x itself for MaxPool, v for
// MaxPoolGradGrad.
template <int kFrom>
absl::Status TakeAtMaxima(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, x.shape()));
  VisitReal(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ForEachMaximum<T>(window, x, [&](int64_t y, int64_t where) {
      ctx.output(0).data<T>()[y] = ctx.input(kFrom).data<T>()[where];
    });
  });
  return absl::OkStatus();
}

absl::Status MaxPoolGradRef(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, x.shape()));
  VisitReal(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    Sums<T> dx(ctx.output(0));
    ForEachMaximum<T>(window, x, [&](int64_t y, int64_t where) {
      dx.Add(where, static_cast<Acc>(ctx.input(2).data<T>()[y]));
    });
  });
  return absl::OkStatus();
}

// Where the elements of x stand in the windows that hold them, counted row by row.
class Positions {
 public:
  Positions(const Window& window, int64_t channels) : window_(window), channels_(channels) {}

  // The position of x's element x_index in the window of y's element y_index.
  int64_t Of(int64_t y_index, int64_t x_index) const {
    const WindowDim& h = window_.height;
    const WindowDim& w = window_.width;
    const int64_t oh = y_index / channels_ / w.output % h.output;
    const int64_t ow = y_index / channels_ % w.output;
    const int64_t ih = x_index / channels_ / w.input % h.input;
    const int64_t iw = x_index / channels_ % w.input;
    return (ih - oh * h.stride + h.pad_before) * w.window + iw - ow * w.stride + w.pad_before;
  }

 private:
  const Window& window_;
  const int64_t channels_;
};

absl::Status MaxPoolWithPositionsRef(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, x.shape()));
  const Positions positions(window, x.shape().dim(3));
  VisitReal(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ForEachMaximum<T>(window, x, [&](int64_t y, int64_t where) {
      ctx.output(0).data<T>()[y] = x.data<T>()[where];
      ctx.output(1).data<uint8_t>()[y] = uint8_t(positions.Of(y, where));
    });
  });
  return absl::OkStatus();
}

absl::Status MaxPoolGradWithPositionsRef(KernelContext& ctx) {
  Tensor& dx = ctx.output(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, dx.shape()));
  const int64_t channels = dx.shape().dim(3);
  const Positions positions(window, channels);
  VisitReal(dx.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    Sums<T> sums(dx);
    std::vector<int64_t> taps;
    ForEachWindow(
        window, dx.shape().dim(0), channels, [&](int64_t) { taps.clear(); },
        [&](int64_t i) { taps.push_back(i); },
        [&](int64_t y) {
          for (const int64_t i : taps) {
            if (positions.Of(y, i) != ctx.input(1).data<uint8_t>()[y]) continue;
            sums.Add(i, static_cast<Acc>(ctx.input(0).data<T>()[y]));
          }
        });
  });
  return absl::OkStatus();
}

absl::Status AvgPoolRef(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, x.shape()));
  VisitReal(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    Acc sum{};
    int64_t count = 0;
    ForEachWindow(
        window, x.shape().dim(0), x.shape().dim(3),
        [&](int64_t) {
          sum = Acc{};
          count = 0;
        },
        [&](int64_t i) {
          sum += static_cast<Acc>(x.data<T>()[i]);
          ++count;
        },
        [&](int64_t y) { ctx.output(0).data<T>()[y] = static_cast<T>(sum / Acc(count)); });
  });
  return absl::OkStatus();
}

absl::Status AvgPoolGradRef(KernelContext& ctx) {
  const Tensor& dy = ctx.input(0);
  Tensor& dx = ctx.output(0);
  TUTTI_ASSIGN_OR_RETURN(const Window window, PoolWindow(*ctx.node, dx.shape()));
  VisitReal(dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    Sums<T> sums(dx);
    std::vector<int64_t> taps;
    ForEachWindow(
        window, dx.shape().dim(0), dx.shape().dim(3), [&](int64_t) { taps.clear(); },
        [&](int64_t i) { taps.push_back(i); },
        [&](int64_t y) {
          const Acc share = static_cast<Acc>(dy.data<T>()[y]) / Acc(taps.size());
          for (const int64_t i : taps) sums.Add(i, share);
        });
  });
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolRef(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const int64_t pixels = x.shape().dim(1) * x.shape().dim(2);
  const int64_t channels = x.shape().dim(3);
  VisitReal(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    for (int64_t n = 0; n < x.shape().dim(0); ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        Acc sum{};
        for (int64_t p = 0; p < pixels; ++p) {
          sum += static_cast<Acc>(x.data<T>()[(n * pixels + p) * channels + c]);
        }
        ctx.output(0).data<T>()[n * channels + c] = static_cast<T>(sum / Acc(pixels));
      }
    }
  });
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolGradRef(KernelContext& ctx) {
  Tensor& dx = ctx.output(0);
  const int64_t pixels = dx.shape().dim(1) * dx.shape().dim(2);
  const int64_t channels = dx.shape().dim(3);
  VisitReal(dx.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = Accumulator<T>;
    const T* dy = ctx.input(0).data<T>();
    for (int64_t i = 0; i < dx.elements(); ++i) {
      const int64_t n = i / (pixels * channels);
      dx.data<T>()[i] =
          static_cast<T>(static_cast<Acc>(dy[n * channels + i % channels]) / Acc(pixels));
    }
  });
  return absl::OkStatus();
}

// A reference kernel whose input 1 is the shape of its output.
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
                  return WithRunTimeShape(std::make_unique<FromFunction>(compute), 1);
                }});
}

}  // namespace

void RegisterPoolRefKernels(KernelRegistry& registry) {
  const std::vector<DType> reals = {kFloat16, kBFloat16, kFloat32, kFloat64};
  AddFunctionKernel(registry, "MaxPool", "ref", TakeAtMaxima<0>, reals);
  AddFunctionKernel(registry, "MaxPoolGrad", "ref", MaxPoolGradRef, reals);
  AddFunctionKernel(registry, "MaxPoolGradGrad", "ref", TakeAtMaxima<2>, reals);
  AddFunctionKernel(registry, "_MaxPoolWithPositions", "ref", MaxPoolWithPositionsRef, reals);
  AddFunctionKernel(registry, "_MaxPoolGradWithPositions", "ref", MaxPoolGradWithPositionsRef,
                    reals);
  AddFunctionKernel(registry, "AvgPool", "ref", AvgPoolRef, reals);
  AddShapedRef(registry, "AvgPoolGrad", AvgPoolGradRef, reals);
  AddFunctionKernel(registry, "GlobalAvgPool", "ref", GlobalAvgPoolRef, reals);
  AddShapedRef(registry, "GlobalAvgPoolGrad", GlobalAvgPoolGradRef, reals);
}

}  // namespace tutti
