#include <algorithm>

#include "tutti/graph/ops/window.h"
#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

struct RandomPool {
  Shape x, y;
  Window window;
  AttrList attrs;
};

RandomPool MakePool(Random& random) {
  const std::vector<int64_t> window = {random.Integer(1, 3), random.Integer(1, 3)};
  const std::vector<int64_t> strides = {random.Integer(1, 3), random.Integer(1, 3)};
  const std::string padding = random.Coin() ? "SAME" : "VALID";
  const int64_t h = window[0] + random.Integer(0, 6), w = window[1] + random.Integer(0, 6);
  const int64_t channels = random.Pick<int64_t>({0, 1, 2, 3, 7, 8, 9, 16, 19, 40});
  const std::vector<int64_t> ones = {1, 1};
  RandomPool pool;
  pool.window = *ResolveWindow({.strides = strides, .dilations = ones, .padding = padding}, h, w,
                               window[0], window[1]);
  pool.x = Shape{random.Integer(0, 3), h, w, channels};
  pool.y = Shape{pool.x.dim(0), pool.window.height.output, pool.window.width.output, channels};
  pool.attrs = {{"padding", padding}, {"strides", strides}, {"window", window}};
  return pool;
}

// The maxima of x, by the plainest loops.
template <typename T>
Tensor Maxima(const RandomPool& pool, const Tensor& x) {
  Tensor y(x.dtype(), pool.y);
  const WindowDim &h = pool.window.height, &w = pool.window.width;
  const int64_t channels = pool.x.dim(3);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t c = i % channels, ow = i / channels % w.output;
    const int64_t oh = i / channels / w.output % h.output, n = i / channels / w.output / h.output;
    T best = -100;
    for (int64_t th = 0; th < h.window; ++th) {
      for (int64_t tw = 0; tw < w.window; ++tw) {
        const int64_t ih = oh * h.stride - h.pad_before + th;
        const int64_t iw = ow * w.stride - w.pad_before + tw;
        if (ih < 0 || ih >= h.input || iw < 0 || iw >= w.input) continue;
        best = std::max(best, x.data<T>()[((n * h.input + ih) * w.input + iw) * channels + c]);
      }
    }
    y.data<T>()[i] = best;
  }
  return y;
}

OpCase MaxPoolGradCase(Random& random, DType real, bool like_x) {
  const RandomPool pool = MakePool(random);
  const Tensor x = RandomDistinct(random, real, pool.x, 4);
  const Tensor y = real == kFloat64 ? Maxima<double>(pool, x) : Maxima<float>(pool, x);
  return {{x, y, RandomTensor(random, real, like_x ? pool.x : pool.y)}, pool.attrs, {2}};
}

Tensor ShapeVector(const Shape& shape) {
  return IntegerVector({shape.dims().begin(), shape.dims().end()});
}

}  // namespace

void AddPoolSamples(SampleRegistry& samples) {
  samples.Add({.op = "MaxPool", .make = [](Random& random, DType real) {
                 const RandomPool pool = MakePool(random);
                 return OpCase{{RandomDistinct(random, real, pool.x, 4)}, pool.attrs};
               }});
  samples.Add({.op = "AvgPool", .make = [](Random& random, DType real) {
                 const RandomPool pool = MakePool(random);
                 return OpCase{{RandomTensor(random, real, pool.x)}, pool.attrs};
               }});
  samples.Add(
      {.op = "AvgPoolGrad", .make = [](Random& random, DType real) {
         const RandomPool pool = MakePool(random);
         return OpCase{{RandomTensor(random, real, pool.y), ShapeVector(pool.x)}, pool.attrs};
       }});
  samples.Add({.op = "MaxPoolGrad", .make = [](Random& random, DType real) {
                 return MaxPoolGradCase(random, real, false);
               }});
  samples.Add({.op = "MaxPoolGradGrad", .make = [](Random& random, DType real) {
                 return MaxPoolGradCase(random, real, true);
               }});
  samples.Add({.op = "GlobalAvgPool", .make = [](Random& random, DType real) {
                 return OpCase{{RandomTensor(random, real, MakePool(random).x)}};
               }});
  samples.Add(
      {.op = "GlobalAvgPoolGrad", .make = [](Random& random, DType real) {
         const Shape x = MakePool(random).x;
         return OpCase{{RandomTensor(random, real, Shape{x.dim(0), x.dim(3)}), ShapeVector(x)}};
       }});
}

}  // namespace tutti::testing
