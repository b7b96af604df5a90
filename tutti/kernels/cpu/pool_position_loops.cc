// Max-pooling that notes where each maximum was, so that its gradient reads a byte for each pooled
// element and dy, and neither x nor y.
#include "tutti/kernels/cpu/pool_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/pool_position_loops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <cstring>

#include "tutti/kernels/cpu/pool_windows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

// The largest so far, and where it was.
struct Maximum {
  PoolV value;
  PositionV position;

  HWY_INLINE void Try(PoolV v, int32_t at) {
    const auto beats = Beats(v, value);
    value = hn::IfThenElse(beats, v, value);
    position =
        hn::IfThenElse(hn::RebindMask(PositionD(), beats), hn::Set(PositionD(), at), position);
  }
};

// What of `gradient` goes to the tap `position`: all where the maximum was there, else 0.
HWY_INLINE PoolV At(PositionV where, int32_t position, PoolV gradient) {
  const auto here = hn::Eq(where, hn::Set(PositionD(), position));
  return hn::IfThenElseZero(hn::RebindMask(PoolD(), here), gradient);
}

// Calls body(offset in the image, position in the window) for the taps, in row-major order.
template <typename Body>
HWY_INLINE void ForTaps(const Window& window, const Taps& taps, int64_t inner, const Body& body) {
  for (int64_t r = taps.row_begin; r < taps.row_end; ++r) {
    for (int64_t c = taps.column_begin; c < taps.column_end; ++c) {
      body((r * window.width.input + c) * inner,
           int32_t((r - taps.row) * window.width.window + c - taps.column));
    }
  }
}

// Windows of any size.
void AnyMaxPool(const Window& window, int64_t inner, const float* x, float* y, uint8_t* positions,
                int64_t begin, int64_t end) {
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const Taps taps = TapsOf(window, oh, ow);
    const float* from = x + image * InputImage(window) * inner;
    const int64_t at = OutputIndex(window, image, oh, ow) * inner;
    const int64_t first_row = taps.row_begin - taps.row;
    const int64_t first_column = taps.column_begin - taps.column;
    const auto first = int32_t(first_row * window.width.window + first_column);
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      Maximum best = {
          lanes.Load(from + (taps.row_begin * window.width.input + taps.column_begin) * inner),
          hn::Set(PositionD(), first)};
      ForTaps(window, taps, inner, [&](int64_t offset, int32_t position) HWY_ATTR {
        best.Try(lanes.Load(from + offset), position);
      });
      lanes.Store(best.value, y + at);
      lanes.StorePositions(best.position, positions + at);
    });
  });
}

void AnyMaxPoolGrad(const Window& window, int64_t inner, const uint8_t* positions, const float* dy,
                    float* dx, int64_t begin, int64_t end) {
  const bool tiles = Tiles(window);
  const int64_t image_size = InputImage(window) * inner;
  if (!tiles) std::memset(dx + begin * image_size, 0, size_t((end - begin) * image_size) * 4);
  ForOutputs(window, begin, end, [&](int64_t image, int64_t oh, int64_t ow) HWY_ATTR {
    const Taps taps = TapsOf(window, oh, ow);
    float* to = dx + image * image_size;
    const int64_t at = OutputIndex(window, image, oh, ow) * inner;
    ForInner(inner, [&](const auto& lanes) HWY_ATTR {
      const PoolV gradient = lanes.Load(dy + at);
      const PositionV where = lanes.LoadPositions(positions + at);
      ForTaps(window, taps, inner, [&](int64_t offset, int32_t position) HWY_ATTR {
        const PoolV part = At(where, position, gradient);
        lanes.Store(tiles ? part : hn::Add(lanes.Load(to + offset), part), to + offset);
      });
    });
  });
}

// Windows of two by two, side by side, that cover the image: taps without bounds.
bool IsQuads(const Window& window, int64_t inner) {
  return Tiles(window) && window.height.window == 2 && window.width.window == 2 &&
         inner % int64_t(hn::Lanes(PoolD())) == 0;
}

// Calls body(lanes, index in y, index in x of the upper left, offset of the lower row) for a vector
// of every output position.
template <typename Body>
HWY_INLINE void ForQuads(const Window& window, int64_t inner, int64_t begin, int64_t end,
                         const Body& body) {
  const int64_t row = window.width.input * inner;
  const int64_t lanes = int64_t(hn::Lanes(PoolD()));
  for (int64_t r = begin * window.height.output; r < end * window.height.output; ++r) {
    for (int64_t ow = 0; ow < window.width.output; ++ow) {
      const int64_t y = (r * window.width.output + ow) * inner;
      const int64_t x = 2 * (r * row + ow * inner);
      for (int64_t c = 0; c < inner; c += lanes) body(WholeVector{c}, y, x, row);
    }
  }
}

void QuadMaxPool(const Window& window, int64_t inner, const float* x, float* y, uint8_t* positions,
                 int64_t begin, int64_t end) {
  ForQuads(window, inner, begin, end,
           [&](WholeVector lanes, int64_t to, int64_t from, int64_t row) HWY_ATTR {
             Maximum best = {lanes.Load(x + from), hn::Zero(PositionD())};
             best.Try(lanes.Load(x + from + inner), 1);
             best.Try(lanes.Load(x + from + row), 2);
             best.Try(lanes.Load(x + from + row + inner), 3);
             lanes.Store(best.value, y + to);
             lanes.StorePositions(best.position, positions + to);
           });
}

void QuadMaxPoolGrad(const Window& window, int64_t inner, const uint8_t* positions, const float* dy,
                     float* dx, int64_t begin, int64_t end) {
  ForQuads(window, inner, begin, end,
           [&](WholeVector lanes, int64_t from, int64_t to, int64_t row) HWY_ATTR {
             const PoolV gradient = lanes.Load(dy + from);
             const PositionV where = lanes.LoadPositions(positions + from);
             lanes.Store(At(where, 0, gradient), dx + to);
             lanes.Store(At(where, 1, gradient), dx + to + inner);
             lanes.Store(At(where, 2, gradient), dx + to + row);
             lanes.Store(At(where, 3, gradient), dx + to + row + inner);
           });
}

void MaxPoolWithPositions(const Window& window, int64_t inner, const float* x, float* y,
                          uint8_t* positions, int64_t begin, int64_t end) {
  const auto loop = IsQuads(window, inner) ? QuadMaxPool : AnyMaxPool;
  loop(window, inner, x, y, positions, begin, end);
}

void MaxPoolGradWithPositions(const Window& window, int64_t inner, const uint8_t* positions,
                              const float* dy, float* dx, int64_t begin, int64_t end) {
  const auto loop = IsQuads(window, inner) ? QuadMaxPoolGrad : AnyMaxPoolGrad;
  loop(window, inner, positions, dy, dx, begin, end);
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(MaxPoolWithPositions);
HWY_EXPORT(MaxPoolGradWithPositions);

void MaxPoolWithPositionsImages(const Window& window, int64_t inner, const float* x, float* y,
                                uint8_t* positions, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MaxPoolWithPositions)(window, inner, x, y, positions, begin, end);
}

void MaxPoolGradWithPositionsImages(const Window& window, int64_t inner, const uint8_t* positions,
                                    const float* dy, float* dx, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MaxPoolGradWithPositions)(window, inner, positions, dy, dx, begin, end);
}

}  // namespace tutti
#endif  // HWY_ONCE
