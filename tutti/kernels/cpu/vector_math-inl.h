// Functions of float vectors, for kernels that run on every Highway target. Include after
// hwy/foreach_target.h, in the way of Highway's own "-inl.h" headers.
//
// Polynomials were fitted at Chebyshev nodes in double. Errors against double, over random
// arguments of all magnitudes: Exp, Log, Log1p, Expm1, Tanh, Sigmoid below 3 ulp; Erf below 1.2e-7
// absolute. Infinities and NaN come out as the C library has them.
#if defined(TUTTI_KERNELS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_CPU_VECTOR_MATH_INL_H_
#undef TUTTI_KERNELS_CPU_VECTOR_MATH_INL_H_
#else
#define TUTTI_KERNELS_CPU_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

// x within [low, high]; NaN stays. (Min and Max treat NaN differently from target to target.)
HWY_INLINE FloatVec ClampKeepingNan(FloatTag d, FloatVec x, float low, float high) {
  const FloatVec vlow = hn::Set(d, low);
  const FloatVec vhigh = hn::Set(d, high);
  x = hn::IfThenElse(hn::Lt(x, vlow), vlow, x);
  return hn::IfThenElse(hn::Gt(x, vhigh), vhigh, x);
}

// 2^n for -126 <= n <= 127.
HWY_INLINE FloatVec PowerOfTwo(FloatTag d, IntVec n) {
  const IntTag di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// x = n ln 2 + r with |r| <= ln 2 / 2; gives n, and e^r - 1.
HWY_INLINE FloatVec ReducedExpm1(FloatTag d, FloatVec x, IntVec* n) {
  *n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const FloatVec steps = hn::ConvertTo(d, *n);
  FloatVec r = hn::NegMulAdd(steps, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(steps, hn::Set(d, 1.42860677e-6f), r);
  FloatVec q = hn::Set(d, 0.001392617750197555f);
  q = hn::MulAdd(q, r, hn::Set(d, 0.00836317418011583f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.04166655465374693f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.16666577018959358f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

HWY_INLINE FloatVec VExp(FloatTag d, FloatVec x) {
  x = ClampKeepingNan(d, x, -104.0f, 89.0f);
  IntVec n;
  const FloatVec e = hn::Add(ReducedExpm1(d, x, &n), hn::Set(d, 1.0f));
  // Two steps, since 2^n alone leaves the range at both ends.
  const IntVec half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(e, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
}

HWY_INLINE FloatVec VExpm1(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec held = ClampKeepingNan(d, x, -80.0f, 88.0f);
  IntVec n;
  const FloatVec e = ReducedExpm1(d, held, &n);
  const FloatVec scale = PowerOfTwo(d, n);
  const FloatVec result = hn::MulAdd(e, scale, hn::Sub(scale, one));
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.0f)), VExp(d, x), result);
}

HWY_INLINE FloatVec VLog(FloatTag d, FloatVec x) {
  const IntTag di;
  const auto tiny = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const FloatVec normal = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  // The mantissa lies in [sqrt(1/2), sqrt(2)): the exponent counts from the bits of sqrt(1/2).
  const IntVec bits = hn::BitCast(di, normal);
  const IntVec n = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const FloatVec mantissa = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(n)));
  FloatVec exponent = hn::ConvertTo(d, n);
  exponent = hn::Sub(exponent, hn::IfThenElseZero(tiny, hn::Set(d, 23.0f)));
  // log(1 + f) = 2 atanh(s) = f - s (f - 2 s^2 h(s^2)) with s = f / (2 + f).
  const FloatVec f = hn::Sub(mantissa, hn::Set(d, 1.0f));
  const FloatVec s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f)));
  const FloatVec z = hn::Mul(s, s);
  FloatVec h = hn::Set(d, 0.11665482020920895f);
  h = hn::MulAdd(h, z, hn::Set(d, 0.14275401276817015f));
  h = hn::MulAdd(h, z, hn::Set(d, 0.2000006100040723f));
  h = hn::MulAdd(h, z, hn::Set(d, 0.33333333277150085f));
  const FloatVec rest = hn::NegMulAdd(hn::Add(z, z), h, f);
  FloatVec result = hn::MulAdd(exponent, hn::Set(d, 1.42860677e-6f), hn::NegMulAdd(s, rest, f));
  result = hn::MulAdd(exponent, hn::Set(d, 0.693145751953125f), result);

  const FloatVec zero = hn::Zero(d);
  const FloatVec largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto ordinary = hn::And(hn::Gt(x, zero), hn::Le(x, largest));
  if (HWY_LIKELY(hn::AllTrue(d, ordinary))) return result;
  const FloatVec infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Gt(x, largest), infinity, result);
  return hn::IfThenElse(hn::Ge(x, zero), result,
                        hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
}

// Kahan's correction of log(u), u = 1 + x rounded: times x / (u - 1).
HWY_INLINE FloatVec VLog1p(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec u = hn::Add(one, x);
  const FloatVec change = hn::Sub(u, one);
  const FloatVec log = VLog(d, u);
  const auto exact =
      hn::Or(hn::Eq(change, hn::Zero(d)), hn::Gt(u, hn::Set(d, std::numeric_limits<float>::max())));
  // u = 1: x itself; u infinite: x is, too.
  return hn::IfThenElse(exact, x, hn::Mul(log, hn::Div(x, change)));
}

HWY_INLINE FloatVec VSigmoid(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, VExp(d, hn::Neg(x))));
}

// expm1(2|x|) / (expm1(2|x|) + 2), precise near 0 too.
HWY_INLINE FloatVec VTanh(FloatTag d, FloatVec x) {
  const FloatVec twice = hn::Abs(hn::Add(x, x));
  const FloatVec thirty = hn::Set(d, 30.0f);
  const FloatVec held = hn::IfThenElse(hn::Gt(twice, thirty), thirty, twice);
  IntVec n;
  const FloatVec e = ReducedExpm1(d, held, &n);
  const FloatVec scale = PowerOfTwo(d, n);
  const FloatVec t = hn::MulAdd(e, scale, hn::Sub(scale, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, 2.0f))), x);
}

// erfc(a) for a >= 0, as e^(-a^2) t P(t) with t = 1 / (1 + a/2); *gauss is e^(-a^2).
HWY_INLINE FloatVec ErfcOfPositive(FloatTag d, FloatVec a, FloatVec* gauss) {
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec t = hn::Div(one, hn::MulAdd(a, hn::Set(d, 0.5f), one));
  FloatVec p = hn::Set(d, 0.03327713771956936f);
  p = hn::MulAdd(p, t, hn::Set(d, -0.17691017995789535f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.34649127303188565f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.24013930697220268f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.06620874236549097f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.061462884486246164f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.04468535118329956f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.18820150044231077f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.24476329253555776f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.28228969777204205f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.28208709426208867f));
  *gauss = VExp(d, hn::Neg(hn::Mul(a, a)));
  return hn::Mul(hn::Mul(p, t), *gauss);
}

HWY_INLINE FloatVec VErf(FloatTag d, FloatVec x) {
  const FloatVec a = hn::Abs(x);
  FloatVec gauss;
  const FloatVec far = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), ErfcOfPositive(d, a, &gauss)), x);
  const FloatVec z = hn::Mul(x, x);
  FloatVec p = hn::Set(d, 8.747829964432046e-05f);
  p = hn::MulAdd(p, z, hn::Set(d, -0.0008226568213246985f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.005207980884897467f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.026862036359019983f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.112837404472053f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.37612636512707737f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.1283791669127268f));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.85f)), hn::Mul(p, x), far);
}

// The normal distribution's cumulative function, precise in its lower tail; *gauss is e^(-x^2/2).
HWY_INLINE FloatVec NormalCdf(FloatTag d, FloatVec x, FloatVec* gauss) {
  const FloatVec a = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const FloatVec tail = hn::Mul(hn::Set(d, 0.5f), ErfcOfPositive(d, a, gauss));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
}

// Highway's own, whose range reduction holds to about 39000; the C library's beyond.
template <float (*kScalar)(float), typename Vectors>
HWY_INLINE FloatVec Periodic(FloatTag d, FloatVec x, const Vectors& vectors) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 30000.0f))))) return vectors(d, x);
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = kScalar(lanes[i]);
  return hn::Load(d, lanes);
}

inline float ScalarSin(float x) { return std::sin(x); }
inline float ScalarCos(float x) { return std::cos(x); }

struct HighwaySin {
  HWY_INLINE FloatVec operator()(FloatTag d, FloatVec x) const { return hn::Sin(d, x); }
};
struct HighwayCos {
  HWY_INLINE FloatVec operator()(FloatTag d, FloatVec x) const { return hn::Cos(d, x); }
};

HWY_INLINE FloatVec VSin(FloatTag d, FloatVec x) { return Periodic<ScalarSin>(d, x, HighwaySin()); }
HWY_INLINE FloatVec VCos(FloatTag d, FloatVec x) { return Periodic<ScalarCos>(d, x, HighwayCos()); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
