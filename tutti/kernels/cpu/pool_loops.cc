// Pooling at the speed of memory. oneDNN 2.6's max pooling keeps a workspace of positions and took
// 9 ms forward and backward for the CNN of the benchmarks, where reading x and y again to find the
// maxima costs 2.
#include "tutti/kernels/cpu/pool_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/pool_loops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The taps of one output position that lie inside the image.
struct Taps {
  int64_t row_begin, row_end, column_begin, column_end;
  int64_t count() const { return (row_end - row_begin) * (column_end - column_begin); }
};

HWY_INLINE Taps TapsOf(const Window& window, int64_t oh, int64_t ow) {
  const WindowDim& h = window.height;
  const WindowDim& w = window.width;
  const int64_t row = oh * h.stride - h.pad_before;
  const int64_t column = ow * w.stride - w.pad_before;
  return {std::max<int64_t>(row, 0), std::min(h.input, row + h.window),
          std::max<int64_t>(column, 0), std::min(w.input, column + w.window)};
}

// Calls body(d, c, load, store) for the elements [0, inner) of a position, a vector at a time; the
// last, shorter one is loaded and stored in part.
template <typename Body>
HWY_INLINE void ForInner(int64_t inner, const Body& body) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= inner; c += lanes) {
    body(
        c, [&](const float* p) HWY_ATTR { return hn::LoadU(d, p + c); },
        [&](V v, float* p) HWY_ATTR { hn::StoreU(v, d, p + c); });
  }
  // One float at a time: vectors of one lane would read no further, but Highway's masked loads may
  // fault at the end of memory on some targets.
  if (c < inner) {
    const int64_t rest = inner - c;
    HWY_ALIGN float buffer[hn::MaxLanes(d)] = {};
    body(
        c,
        [&](const float* p) HWY_ATTR {
          std::memcpy(buffer, p + c, size_t(rest) * sizeof(float));
          return hn::Load(d, buffer);
        },
        [&](V v, float* p) HWY_ATTR {
          hn::Store(v, d, buffer);
          std::memcpy(p + c, buffer, size_t(rest) * sizeof(float));
        });
  }
}

// Calls body(image, oh, ow) for every output position.
template <typename Body>
HWY_INLINE void ForOutputs(const Window& window, int64_t begin, int64_t end, const Body& body) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t oh = 0; oh < window.height.output; ++oh) {
      for (int64_t ow = 0; ow < window.width.output; ++ow) body(image, oh, ow);
    }
  }
}

HWY_INLINE int64_t InputImage(const Window& w) { return w.height.input * w.width.input; }

HWY_INLINE int64_t OutputIndex(const Window& w, int64_t image, int64_t oh, int64_t ow) {
  return (image * w.height.output + oh) * w.width.output + ow;
}

void MaxPool(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
             int64_t end) {
  const int64_t width = window.width.input;
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * InputImage(window) * inner;
    float* to = y + OutputIndex(window, image, oh, ow) * inner;
    ForInner(inner, [&](int64_t, const auto& load, const auto& store) HWY_ATTR {
      V best = load(from + (taps.row_begin * width + taps.column_begin) * inner);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          const V v = load(from + (r * width + c) * inner);
          // NaN wins, though it is larger than nothing.
          best = hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best);
        }
      }
      store(best, to);
    });
  });
}

void AvgPool(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
             int64_t end) {
  const int64_t width = window.width.input;
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const D d;
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * InputImage(window) * inner;
    float* to = y + OutputIndex(window, image, oh, ow) * inner;
    const V scale = hn::Set(d, 1.0f / float(taps.count()));
    ForInner(inner, [&](int64_t, const auto& load, const auto& store) HWY_ATTR {
      V sum = hn::Zero(d);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          sum = hn::Add(sum, load(from + (r * width + c) * inner));
        }
      }
      store(hn::Mul(sum, scale), to);
    });
  });
}

// Do all inputs lie in exactly one window? Then gradients are stored, not added.
HWY_INLINE bool Tiles(const WindowDim& dim) {
  return dim.stride == dim.window && dim.pad_before == 0 && dim.output * dim.stride == dim.input;
}

void MaxPoolGrad(const Window& window, int64_t inner, const float* x, const float* y,
                 const float* dy, float* dx, int64_t begin, int64_t end) {
  const int64_t width = window.width.input;
  const bool tiles = Tiles(window.height) && Tiles(window.width);
  const int64_t image_size = InputImage(window) * inner;
  if (!tiles) std::memset(dx + begin * image_size, 0, size_t((end - begin) * image_size) * 4);
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const D d;
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * image_size;
    float* to = dx + image * image_size;
    const int64_t at = OutputIndex(window, image, oh, ow) * inner;
    ForInner(inner, [&](int64_t, const auto& load, const auto& store) HWY_ATTR {
      const V best = load(y + at);
      // The gradient that still looks for its maximum: dy, then 0 in the lanes that found it.
      V left = load(dy + at);
      const auto best_is_nan = hn::IsNaN(best);
      auto open = hn::Eq(left, left);
      open = hn::Or(open, hn::Not(open));
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          const int64_t i = (r * width + c) * inner;
          const V v = load(from + i);
          const auto same = hn::Or(hn::Eq(v, best), hn::And(hn::IsNaN(v), best_is_nan));
          const auto here = hn::And(same, open);
          open = hn::AndNot(same, open);
          const V part = hn::IfThenElseZero(here, left);
          store(tiles ? part : hn::Add(load(to + i), part), to + i);
        }
      }
    });
    (void)d;
  });
}

void AvgPoolGrad(const Window& window, int64_t inner, const float* dy, float* dx, int64_t begin,
                 int64_t end) {
  const int64_t width = window.width.input;
  const bool tiles = Tiles(window.height) && Tiles(window.width);
  const int64_t image_size = InputImage(window) * inner;
  if (!tiles) std::memset(dx + begin * image_size, 0, size_t((end - begin) * image_size) * 4);
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const D d;
    const Taps taps = TapsOf(window, oh, ow);
    float* to = dx + image * image_size;
    const float* from = dy + OutputIndex(window, image, oh, ow) * inner;
    const V scale = hn::Set(d, 1.0f / float(taps.count()));
    ForInner(inner, [&](int64_t, const auto& load, const auto& store) HWY_ATTR {
      const V part = hn::Mul(load(from), scale);
      for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
        for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
          float* p = to + (r * width + c) * inner;
          store(tiles ? part : hn::Add(load(p), part), p);
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
