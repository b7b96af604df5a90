// Pooling at the speed of memory. oneDNN 2.6's max pooling, with its workspace, took 9 ms forward
// and backward for the CNN of the benchmarks, where reading x and y again to find the maxima costs
// 3, and noting positions (pool_position_loops.cc) 1.
#include "tutti/kernels/cpu/pool_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/pool_loops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <cstring>

#include "tutti/kernels/cpu/pool_windows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

void MaxPool(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
             int64_t end) {
  const int64_t width = window.width.input;
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * InputImage(window) * inner;
    float* to = y + OutputIndex(window, image, oh, ow) * inner;
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      PoolV best = lanes.Load(from + (taps.row_begin * width + taps.column_begin) * inner);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          const PoolV v = lanes.Load(from + (r * width + c) * inner);
          best = hn::IfThenElse(Beats(v, best), v, best);
        }
      }
      lanes.Store(best, to);
    });
  });
}

void AvgPool(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
             int64_t end) {
  const int64_t width = window.width.input;
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const PoolD d;
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * InputImage(window) * inner;
    float* to = y + OutputIndex(window, image, oh, ow) * inner;
    const PoolV scale = hn::Set(d, 1.0f / float(taps.count()));
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      PoolV sum = hn::Zero(d);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          sum = hn::Add(sum, lanes.Load(from + (r * width + c) * inner));
        }
      }
      lanes.Store(hn::Mul(sum, scale), to);
    });
  });
}

void MaxPoolGrad(const Window& window, int64_t inner, const float* x, const float* y,
                 const float* dy, float* dx, int64_t begin, int64_t end) {
  const int64_t width = window.width.input;
  const bool tiles = Tiles(window);
  const int64_t image_size = InputImage(window) * inner;
  if (!tiles) std::memset(dx + begin * image_size, 0, size_t((end - begin) * image_size) * 4);
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * image_size;
    float* to = dx + image * image_size;
    const int64_t at = OutputIndex(window, image, oh, ow) * inner;
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      const PoolV best = lanes.Load(y + at);
      // The gradient that still looks for its maximum: dy, then 0 in the lanes that found it.
      PoolV left = lanes.Load(dy + at);
      const auto best_is_nan = hn::IsNaN(best);
      auto open = hn::Eq(left, left);
      open = hn::Or(open, hn::Not(open));
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          const int64_t i = (r * width + c) * inner;
          const PoolV v = lanes.Load(from + i);
          const auto same = hn::Or(hn::Eq(v, best), hn::And(hn::IsNaN(v), best_is_nan));
          const auto here = hn::And(same, open);
          open = hn::AndNot(same, open);
          const PoolV part = hn::IfThenElseZero(here, left);
          lanes.Store(tiles ? part : hn::Add(lanes.Load(to + i), part), to + i);
        }
      }
    });
  });
}

void AvgPoolGrad(const Window& window, int64_t inner, const float* dy, float* dx, int64_t begin,
                 int64_t end) {
  const int64_t width = window.width.input;
  const bool tiles = Tiles(window);
  const int64_t image_size = InputImage(window) * inner;
  if (!tiles) std::memset(dx + begin * image_size, 0, size_t((end - begin) * image_size) * 4);
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const PoolD d;
    const Taps taps = TapsOf(window, oh, ow);
    float* to = dx + image * image_size;
    const float* from = dy + OutputIndex(window, image, oh, ow) * inner;
    const PoolV scale = hn::Set(d, 1.0f / float(taps.count()));
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      const PoolV part = hn::Mul(lanes.Load(from), scale);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          float* p = to + (r * width + c) * inner;
          lanes.Store(tiles ? part : hn::Add(lanes.Load(p), part), p);
        }
      }
    });
  });
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(MaxPool);
HWY_EXPORT(AvgPool);
HWY_EXPORT(MaxPoolGrad);
HWY_EXPORT(AvgPoolGrad);

void MaxPoolImages(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
                   int64_t end) {
  HWY_DYNAMIC_DISPATCH(MaxPool)(window, inner, x, y, begin, end);
}

void AvgPoolImages(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
                   int64_t end) {
  HWY_DYNAMIC_DISPATCH(AvgPool)(window, inner, x, y, begin, end);
}

void MaxPoolGradImages(const Window& window, int64_t inner, const float* x, const float* y,
                       const float* dy, float* dx, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MaxPoolGrad)(window, inner, x, y, dy, dx, begin, end);
}

void AvgPoolGradImages(const Window& window, int64_t inner, const float* dy, float* dx,
                       int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(AvgPoolGrad)(window, inner, dy, dx, begin, end);
}

}  // namespace tutti
#endif  // HWY_ONCE
