// The filter's gradient of a convolution with few input channels, d[tap, c, o] = sum over pixels of
// x[pixel + tap, c] * dy[pixel, o]: vectors run over the output channels o, x is broadcast. Three
// horizontal taps times four vectors are twelve sums that stay in registers along a row of pixels,
// with three broadcasts and four loads for twelve multiply-adds.
#include "tutti/kernels/cpu/conv_few_channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/conv_few_channels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// `count` pixels of a row: x advances by x_step, dy by pixel; vectors of channels lie `block`
// apart.
struct Pixels {
  const float* x;
  int64_t x_step;
  const float* dy;
  int64_t pixel;
  int64_t block;
  int64_t count;
};

// One tap, up to four vectors: sums[0 .. vectors * lanes) += x * dy.
void OneTap(const Pixels& p, int vectors, float* sums) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int v = 0; v < vectors; ++v) {
    V sum = hn::LoadU(d, sums + v * lanes);
    for (int64_t i = 0; i < p.count; ++i) {
      sum = hn::MulAdd(hn::Set(d, p.x[i * p.x_step]),
                       hn::LoadU(d, p.dy + i * p.pixel + v * p.block), sum);
    }
    hn::StoreU(sum, d, sums + v * lanes);
  }
}

// Three taps, x_tap apart in x and tap apart in sums, and four vectors.
void ThreeTaps(const Pixels& p, int64_t x_tap, float* sums, int64_t tap) {
  const D d;
  const int64_t n = int64_t(hn::Lanes(d));
  float* const s0 = sums;
  float* const s1 = sums + tap;
  float* const s2 = sums + 2 * tap;
  V a0 = hn::LoadU(d, s0), a1 = hn::LoadU(d, s0 + n);
  V a2 = hn::LoadU(d, s0 + 2 * n), a3 = hn::LoadU(d, s0 + 3 * n);
  V b0 = hn::LoadU(d, s1), b1 = hn::LoadU(d, s1 + n);
  V b2 = hn::LoadU(d, s1 + 2 * n), b3 = hn::LoadU(d, s1 + 3 * n);
  V c0 = hn::LoadU(d, s2), c1 = hn::LoadU(d, s2 + n);
  V c2 = hn::LoadU(d, s2 + 2 * n), c3 = hn::LoadU(d, s2 + 3 * n);
  const float* x = p.x;
  const float* g = p.dy;
  for (int64_t i = 0; i < p.count; ++i, x += p.x_step, g += p.pixel) {
    const V xa = hn::Set(d, x[0]), xb = hn::Set(d, x[x_tap]), xc = hn::Set(d, x[2 * x_tap]);
    V y = hn::LoadU(d, g);
    a0 = hn::MulAdd(xa, y, a0);
    b0 = hn::MulAdd(xb, y, b0);
    c0 = hn::MulAdd(xc, y, c0);
    y = hn::LoadU(d, g + p.block);
    a1 = hn::MulAdd(xa, y, a1);
    b1 = hn::MulAdd(xb, y, b1);
    c1 = hn::MulAdd(xc, y, c1);
    y = hn::LoadU(d, g + 2 * p.block);
    a2 = hn::MulAdd(xa, y, a2);
    b2 = hn::MulAdd(xb, y, b2);
    c2 = hn::MulAdd(xc, y, c2);
    y = hn::LoadU(d, g + 3 * p.block);
    a3 = hn::MulAdd(xa, y, a3);
    b3 = hn::MulAdd(xb, y, b3);
    c3 = hn::MulAdd(xc, y, c3);
  }
  hn::StoreU(a0, d, s0);
  hn::StoreU(a1, d, s0 + n);
  hn::StoreU(a2, d, s0 + 2 * n);
  hn::StoreU(a3, d, s0 + 3 * n);
  hn::StoreU(b0, d, s1);
  hn::StoreU(b1, d, s1 + n);
  hn::StoreU(b2, d, s1 + 2 * n);
  hn::StoreU(b3, d, s1 + 3 * n);
  hn::StoreU(c0, d, s2);
  hn::StoreU(c1, d, s2 + n);
  hn::StoreU(c2, d, s2 + 2 * n);
  hn::StoreU(c3, d, s2 + 3 * n);
}

// The outputs [begin, end) along the width whose tap t lies inside the image.
struct Span {
  int64_t begin, end;
};
Span Inside(const WindowDim& w, int64_t t) {
  const int64_t shift = w.pad_before - t * w.dilation;  // input = output * stride - shift
  const int64_t begin = shift <= 0 ? 0 : (shift + w.stride - 1) / w.stride;
  const int64_t last = w.input - 1 + shift;
  const int64_t end = last < 0 ? 0 : std::min(w.output, last / w.stride + 1);
  return {std::min(begin, end), end};
}

// One row of outputs, one row of taps, one input channel, `vectors` vectors of output channels.
// x and dy point to column 0; sums to tap 0.
void TapRow(const WindowDim& w, const Pixels& row, int64_t x_column, int vectors, float* sums,
            int64_t tap) {
  const auto one = [&](int64_t t, int64_t begin, int64_t end) HWY_ATTR {
    if (begin >= end) return;
    Pixels part = row;
    part.x += (begin * w.stride - w.pad_before + t * w.dilation) * x_column;
    part.dy += begin * row.pixel;
    part.count = end - begin;
    OneTap(part, vectors, sums + t * tap);
  };
  int64_t t = 0;
  for (; vectors == 4 && t + 3 <= w.window; t += 3) {
    const Span spans[] = {Inside(w, t), Inside(w, t + 1), Inside(w, t + 2)};
    int64_t begin = 0, end = w.output;
    for (const Span& span : spans) {
      begin = std::max(begin, span.begin);
      end = std::min(end, span.end);
    }
    if (begin >= end) {
      for (int i = 0; i < 3; ++i) one(t + i, spans[i].begin, spans[i].end);
      continue;
    }
    Pixels part = row;
    part.x += (begin * w.stride - w.pad_before + t * w.dilation) * x_column;
    part.dy += begin * row.pixel;
    part.count = end - begin;
    ThreeTaps(part, w.dilation * x_column, sums + t * tap, tap);
    for (int i = 0; i < 3; ++i) {
      one(t + i, spans[i].begin, begin);
      one(t + i, end, spans[i].end);
    }
  }
  for (; t < w.window; ++t) one(t, Inside(w, t).begin, Inside(w, t).end);
}

void FilterGradient(const FewChannelsConv& conv, const float* x, const float* dy, float* filter,
                    int64_t image_begin, int64_t image_end) {
  const WindowDim& h = conv.window.height;
  const WindowDim& w = conv.window.width;
  const int64_t lanes = int64_t(hn::Lanes(D()));
  const int64_t in = conv.in_channels, out = conv.out_channels;
  const bool blocked = conv.channel_block > 0;
  const int64_t pixel = blocked ? conv.channel_block : out;
  const int64_t block = blocked ? h.output * w.output * pixel : lanes;
  for (int64_t n = image_begin; n < image_end; ++n) {
    for (int64_t oh = 0; oh < h.output; ++oh) {
      const float* dy_row = dy + n * h.output * w.output * out + oh * w.output * pixel;
      for (int64_t v = 0; v < out / lanes;) {
        const int vectors = out / lanes - v >= 4 ? 4 : 1;
        for (int64_t th = 0; th < h.window; ++th) {
          const int64_t ih = oh * h.stride - h.pad_before + th * h.dilation;
          if (ih < 0 || ih >= h.input) continue;
          for (int64_t c = 0; c < in; ++c) {
            const Pixels row = {.x = x + (n * h.input + ih) * w.input * in + c,
                                .x_step = w.stride * in,
                                .dy = dy_row + v * block,
                                .pixel = pixel,
                                .block = block,
                                .count = 0};
            TapRow(w, row, in, vectors, filter + (th * w.window * in + c) * out + v * lanes,
                   in * out);
          }
        }
        v += vectors;
      }
    }
  }
}

int64_t VectorLanes() { return int64_t(hn::Lanes(D())); }

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(FilterGradient);
HWY_EXPORT(VectorLanes);

bool PrefersFewChannels(const FewChannelsConv& conv) {
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(VectorLanes)();
  return conv.in_channels <= 4 && conv.out_channels % lanes == 0 && lanes > 1 &&
         (conv.channel_block == 0 || conv.channel_block == lanes);
}

void AddFilterGradient(const FewChannelsConv& conv, const float* x, const float* dy, float* filter,
                       int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(FilterGradient)(conv, x, dy, filter, begin, end);
}

}  // namespace tutti
#endif  // HWY_ONCE
