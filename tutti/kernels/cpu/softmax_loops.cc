// Each row is read from memory once: its largest element, its exponentials and their sum, and the
// division follow each other while it stays in the L1 cache. Two accumulators hide the latency of
// the sums. A NaN or infinity makes NaN of its row, as in the reference.
#include "tutti/kernels/cpu/softmax_loops.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/softmax_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "tutti/kernels/cpu/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Calls body(position, load, store) for each vector of a row, the last one with loads that fill up
// with `fill` and stores that leave out what lies behind the row.
struct Whole {
  V Load(const float* p, V) const { return hn::LoadU(D(), p); }
  void Store(V v, float* p) const { hn::StoreU(v, D(), p); }
};
struct Part {
  size_t count;
  V Load(const float* p, V fill) const { return LoadTail(D(), p, count, fill); }
  void Store(V v, float* p) const { StoreTail(v, D(), p, count); }
};
template <typename Body>
HWY_INLINE void ForEachVector(int64_t count, const Body& body) {
  const int64_t lanes = int64_t(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Whole());
  if (i < count) body(i, Part{size_t(count - i)});
}

HWY_INLINE float SumLanes(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// exp(x) for x <= 0, NaN for NaN, within 2 units in the last place; 0 where the result would be
// smaller than normal numbers are. 2^n times a polynomial in the rest of x, which lies within
// ln(2) / 2 of 0; its coefficients are a least-squares fit of the relative error, 4e-9 at most.
// About twice as fast as an exponential for all x.
HWY_INLINE V ExpOfNegative(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // ln(2) in two parts, of which the first has so few bits that n times it is exact.
  const V high = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), high);
  const V r2 = hn::Mul(r, r);
  const V c23 = hn::MulAdd(r, hn::Set(d, 0.166665182f), hn::Set(d, 0.499999886f));
  const V c45 = hn::MulAdd(r, hn::Set(d, 0.00836895178f), hn::Set(d, 0.0416695387f));
  const V tail = hn::MulAdd(r2, hn::MulAdd(r2, hn::Set(d, 0.00137512791f), c45), c23);
  const V p = hn::MulAdd(r2, tail, hn::Add(r, hn::Set(d, 1.0f)));
  // 2^n, from its exponent bits.
  const auto bits = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V result = hn::Mul(p, hn::BitCast(d, bits));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), result);
}

HWY_INLINE float Largest(const float* x, int64_t classes) {
  const D d;
  const V none = hn::Set(d, -kInfinity);
  const int64_t lanes = int64_t(hn::Lanes(d));
  V a = none, b = none;
  int64_t i = 0;
  for (; i + 2 * lanes <= classes; i += 2 * lanes) {
    a = hn::Max(a, hn::LoadU(d, x + i));
    b = hn::Max(b, hn::LoadU(d, x + i + lanes));
  }
  for (; i + lanes <= classes; i += lanes) a = hn::Max(a, hn::LoadU(d, x + i));
  if (i < classes) b = hn::Max(b, LoadTail(d, x + i, size_t(classes - i), none));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

// y = exp(x - largest), where y may be x or null; returns the sum.
template <bool kStore>
HWY_INLINE float ExpAndSum(const float* x, float largest, int64_t classes, float* y) {
  const D d;
  const V none = hn::Set(d, -kInfinity);
  const V shift = hn::Set(d, largest);
  const int64_t lanes = int64_t(hn::Lanes(d));
  V a = hn::Zero(d), b = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= classes; i += 2 * lanes) {
    const V e0 = ExpOfNegative(hn::Sub(hn::LoadU(d, x + i), shift));
    const V e1 = ExpOfNegative(hn::Sub(hn::LoadU(d, x + i + lanes), shift));
    if (kStore) {
      hn::StoreU(e0, d, y + i);
      hn::StoreU(e1, d, y + i + lanes);
    }
    a = hn::Add(a, e0);
    b = hn::Add(b, e1);
  }
  for (; i + lanes <= classes; i += lanes) {
    const V e = ExpOfNegative(hn::Sub(hn::LoadU(d, x + i), shift));
    if (kStore) hn::StoreU(e, d, y + i);
    a = hn::Add(a, e);
  }
  if (i < classes) {
    const size_t tail = size_t(classes - i);
    const V e = ExpOfNegative(hn::Sub(LoadTail(d, x + i, tail, none), shift));
    if (kStore) StoreTail(e, d, y + i, tail);
    // Beside an infinite maximum the lanes behind the row are no zeros.
    b = hn::Add(b, hn::IfThenElseZero(hn::FirstN(d, tail), e));
  }
  return SumLanes(hn::Add(a, b));
}

HWY_INLINE void Scale(float factor, int64_t classes, float* y) {
  const V by = hn::Set(D(), factor);
  ForEachVector(classes,
                [&](int64_t i, auto io) { io.Store(hn::Mul(io.Load(y + i, by), by), y + i); });
}

void SoftmaxLoop(const float* x, int64_t rows, int64_t classes, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += classes, y += classes) {
    const float sum = ExpAndSum<true>(x, Largest(x, classes), classes, y);
    Scale(1 / sum, classes, y);
  }
}

void LogSoftmaxLoop(const float* x, int64_t rows, int64_t classes, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += classes, y += classes) {
    const float largest = Largest(x, classes);
    const float log_sum = std::log(ExpAndSum<false>(x, largest, classes, nullptr));
    const V shift = hn::Set(D(), largest);
    const V log_sums = hn::Set(D(), log_sum);
    ForEachVector(classes, [&](int64_t i, auto io) {
      io.Store(hn::Sub(hn::Sub(io.Load(x + i, shift), shift), log_sums), y + i);
    });
  }
}

void SoftmaxGradLoop(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx) {
  const D d;
  const V zero = hn::Zero(d);
  for (int64_t r = 0; r < rows; ++r, y += classes, dy += classes, dx += classes) {
    V products = zero;
    ForEachVector(classes, [&](int64_t i, auto io) {
      products = hn::MulAdd(io.Load(y + i, zero), io.Load(dy + i, zero), products);
    });
    const V sum = hn::Set(d, SumLanes(products));
    ForEachVector(classes, [&](int64_t i, auto io) {
      const V centred = hn::Sub(io.Load(dy + i, zero), sum);
      io.Store(hn::Mul(io.Load(y + i, zero), centred), dx + i);
    });
  }
}

void LogSoftmaxGradLoop(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx) {
  const D d;
  const V zero = hn::Zero(d);
  for (int64_t r = 0; r < rows; ++r, y += classes, dy += classes, dx += classes) {
    V sums = zero;
    ForEachVector(classes,
                  [&](int64_t i, auto io) { sums = hn::Add(sums, io.Load(dy + i, zero)); });
    const V sum = hn::Set(d, SumLanes(sums));
    ForEachVector(classes, [&](int64_t i, auto io) {
      // y is the logarithm of a probability, but nothing keeps callers from giving more.
      const V log_p = io.Load(y + i, zero);
      const V p = hn::IfThenElse(hn::IsNaN(log_p), log_p, hn::Exp(d, log_p));
      io.Store(hn::NegMulAdd(p, sum, io.Load(dy + i, zero)), dx + i);
    });
  }
}

void SoftmaxWithLogSumLoop(const float* x, int64_t rows, int64_t classes, float* p,
                           float* log_sum) {
  for (int64_t r = 0; r < rows; ++r, x += classes, p += classes) {
    const float largest = Largest(x, classes);
    const float sum = ExpAndSum<true>(x, largest, classes, p);
    Scale(1 / sum, classes, p);
    log_sum[r] = largest + std::log(sum);
  }
}

void SoftmaxCrossEntropyLoop(const float* x, const float* labels, int64_t rows, int64_t classes,
                             float* loss, float* backprop) {
  const D d;
  const V zero = hn::Zero(d);
  for (int64_t r = 0; r < rows; ++r, x += classes, labels += classes, backprop += classes) {
    const float largest = Largest(x, classes);
    const float sum = ExpAndSum<false>(x, largest, classes, nullptr);
    const V shift = hn::Set(d, largest);
    const V log_sum = hn::Set(d, std::log(sum));
    V losses = zero, weights = zero;
    ForEachVector(classes, [&](int64_t i, auto io) {
      const V label = io.Load(labels + i, zero);
      // A class without weight counts nothing, however unlikely it is.
      const V minus_log_p = hn::Sub(log_sum, hn::Sub(io.Load(x + i, shift), shift));
      const V counted = hn::IfThenZeroElse(hn::Eq(label, zero), minus_log_p);
      losses = hn::MulAdd(label, counted, losses);
      weights = hn::Add(weights, label);
    });
    loss[r] = SumLanes(losses);
    const V factor = hn::Set(d, SumLanes(weights) / sum);
    ForEachVector(classes, [&](int64_t i, auto io) {
      const V e = ExpOfNegative(hn::Sub(io.Load(x + i, shift), shift));
      io.Store(hn::MulSub(e, factor, io.Load(labels + i, zero)), backprop + i);
    });
  }
}

void SigmoidCrossEntropyLoop(const float* x, const float* z, int64_t count, float* loss) {
  const D d;
  const V zero = hn::Zero(d);
  ForEachVector(count, [&](int64_t i, auto io) {
    const V logit = io.Load(x + i, zero);
    const V softness = hn::Log1p(d, ExpOfNegative(hn::Neg(hn::Abs(logit))));
    // max(x, 0) - x z, where the zero stands second so that a NaN goes through.
    const V linear = hn::NegMulAdd(logit, io.Load(z + i, zero),
                                   hn::IfThenElse(hn::Lt(logit, zero), zero, logit));
    io.Store(hn::Add(linear, softness), loss + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(SoftmaxLoop);
HWY_EXPORT(LogSoftmaxLoop);
HWY_EXPORT(SoftmaxGradLoop);
HWY_EXPORT(LogSoftmaxGradLoop);
HWY_EXPORT(SoftmaxWithLogSumLoop);
HWY_EXPORT(SoftmaxCrossEntropyLoop);
HWY_EXPORT(SigmoidCrossEntropyLoop);

void SoftmaxRows(const float* x, int64_t rows, int64_t classes, float* y) {
  HWY_DYNAMIC_DISPATCH(SoftmaxLoop)(x, rows, classes, y);
}
void LogSoftmaxRows(const float* x, int64_t rows, int64_t classes, float* y) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxLoop)(x, rows, classes, y);
}
void SoftmaxGradRows(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradLoop)(y, dy, rows, classes, dx);
}
void LogSoftmaxGradRows(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxGradLoop)(y, dy, rows, classes, dx);
}
void SoftmaxWithLogSumRows(const float* x, int64_t rows, int64_t classes, float* p,
                           float* log_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxWithLogSumLoop)(x, rows, classes, p, log_sum);
}
void SoftmaxCrossEntropyRows(const float* x, const float* labels, int64_t rows, int64_t classes,
                             float* loss, float* backprop) {
  HWY_DYNAMIC_DISPATCH(SoftmaxCrossEntropyLoop)(x, labels, rows, classes, loss, backprop);
}
void SigmoidCrossEntropyElements(const float* x, const float* z, int64_t count, float* loss) {
  HWY_DYNAMIC_DISPATCH(SigmoidCrossEntropyLoop)(x, z, count, loss);
}

}  // namespace tutti
#endif  // HWY_ONCE
