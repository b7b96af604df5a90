// Walking over the windows of pooled images, and reading and writing what they hold a vector at a
// time. Include after hwy/foreach_target.h.
#if defined(TUTTI_KERNELS_CPU_POOL_WINDOWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_CPU_POOL_WINDOWS_INL_H_
#undef TUTTI_KERNELS_CPU_POOL_WINDOWS_INL_H_
#else
#define TUTTI_KERNELS_CPU_POOL_WINDOWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tutti/graph/ops/window.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PoolD = hn::ScalableTag<float>;
using PoolV = hn::Vec<PoolD>;
using PositionD = hn::RebindToSigned<PoolD>;  // positions in a window, one for each float
using PositionV = hn::Vec<PositionD>;
using PositionByteD = hn::Rebind<uint8_t, PoolD>;  // as they lie in memory

// The taps of one output position that lie inside the image, and where the window begins, which may
// be outside of it.
struct Taps {
  int64_t row, column;
  int64_t row_begin, row_end, column_begin, column_end;
  int64_t count() const { return (row_end - row_begin) * (column_end - column_begin); }
};

HWY_INLINE Taps TapsOf(const Window& window, int64_t oh, int64_t ow) {
  const WindowDim& h = window.height;
  const WindowDim& w = window.width;
  const int64_t row = oh * h.stride - h.pad_before;
  const int64_t column = ow * w.stride - w.pad_before;
  return {row,
          column,
          std::max<int64_t>(row, 0),
          std::min(h.input, row + h.window),
          std::max<int64_t>(column, 0),
          std::min(w.input, column + w.window)};
}

// Elements [at, at + a vector) of whatever starts at the pointers given.
struct WholeVector {
  int64_t at;

  HWY_INLINE PoolV Load(const float* p) const { return hn::LoadU(PoolD(), p + at); }
  HWY_INLINE void Store(PoolV v, float* p) const { hn::StoreU(v, PoolD(), p + at); }
  HWY_INLINE PositionV LoadPositions(const uint8_t* p) const {
    return hn::PromoteTo(PositionD(), hn::LoadU(PositionByteD(), p + at));
  }
  HWY_INLINE void StorePositions(PositionV v, uint8_t* p) const {
    hn::StoreU(hn::DemoteTo(PositionByteD(), v), PositionByteD(), p + at);
  }
};

// Elements [at, at + count), fewer than a vector. They pass through a buffer: Highway's masked
// loads may fault at the end of memory on some targets.
struct PartOfVector {
  int64_t at;
  int64_t count;

  HWY_INLINE PoolV Load(const float* p) const {
    HWY_ALIGN float buffer[hn::MaxLanes(PoolD())] = {};
    std::memcpy(buffer, p + at, size_t(count) * sizeof(float));
    return hn::Load(PoolD(), buffer);
  }
  HWY_INLINE void Store(PoolV v, float* p) const {
    HWY_ALIGN float buffer[hn::MaxLanes(PoolD())];
    hn::Store(v, PoolD(), buffer);
    std::memcpy(p + at, buffer, size_t(count) * sizeof(float));
  }
  HWY_INLINE PositionV LoadPositions(const uint8_t* p) const {
    HWY_ALIGN uint8_t buffer[hn::MaxLanes(PoolD())] = {};
    std::memcpy(buffer, p + at, size_t(count));
    return hn::PromoteTo(PositionD(), hn::Load(PositionByteD(), buffer));
  }
  HWY_INLINE void StorePositions(PositionV v, uint8_t* p) const {
    HWY_ALIGN uint8_t buffer[hn::MaxLanes(PoolD())];
    hn::Store(hn::DemoteTo(PositionByteD(), v), PositionByteD(), buffer);
    std::memcpy(p + at, buffer, size_t(count));
  }
};

// Calls body(lanes) with WholeVectors, and a PartOfVector for the rest, for the elements [0, inner)
// of a position.
template <typename Body>
HWY_INLINE void ForInner(int64_t inner, const Body& body) {
  const int64_t lanes = int64_t(hn::Lanes(PoolD()));
  int64_t at = 0;
  for (; at + lanes <= inner; at += lanes) body(WholeVector{at});
  if (at < inner) body(PartOfVector{at, inner - at});
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

// Do all inputs lie in exactly one window? Then gradients are stored, not added.
HWY_INLINE bool Tiles(const WindowDim& dim) {
  return dim.stride == dim.window && dim.pad_before == 0 && dim.output * dim.stride == dim.input;
}
HWY_INLINE bool Tiles(const Window& window) { return Tiles(window.height) && Tiles(window.width); }

// Where v takes the place of the best so far: it is larger, or the first NaN.
HWY_INLINE hn::Mask<PoolD> Beats(PoolV v, PoolV best) {
  return hn::AndNot(hn::IsNaN(best), hn::Not(hn::Le(v, best)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
