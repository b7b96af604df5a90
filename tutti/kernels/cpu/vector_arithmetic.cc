// The inner loops of two values.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/vector_arithmetic.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tutti/kernels/cpu/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

// The macros' bodies use the names d, a, b, p.
TUTTI_VECTOR_BINARY(VecAdd, return hn::Add(a, b);)
TUTTI_VECTOR_BINARY(VecSub, return hn::Sub(a, b);)
TUTTI_VECTOR_BINARY(VecMul, return hn::Mul(a, b);)
TUTTI_VECTOR_BINARY(VecDiv, return hn::Div(a, b);)
TUTTI_VECTOR_BINARY(VecFloorDiv, return hn::Floor(hn::Div(a, b));)
TUTTI_VECTOR_BINARY(VecMaximum, return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);)
TUTTI_VECTOR_BINARY(VecMinimum, return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(a, b)), a, b);)
TUTTI_VECTOR_BINARY(VecSquaredDifference, const V difference = hn::Sub(a, b);
                    return hn::Mul(difference, difference);)

constexpr VectorLoops kLoops[] = {
    BinaryOp<VecAdd>("Add"),           BinaryOp<VecSub>("Sub"),
    BinaryOp<VecMul>("Mul"),           BinaryOp<VecDiv>("Div"),
    BinaryOp<VecFloorDiv>("FloorDiv"), BinaryOp<VecMaximum>("Maximum"),
    BinaryOp<VecMinimum>("Minimum"),   BinaryOp<VecSquaredDifference>("SquaredDifference"),
};

}  // namespace

std::span<const VectorLoops> TargetArithmetic() { return kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(TargetArithmetic);

std::span<const VectorLoops> ArithmeticLoops() { return HWY_DYNAMIC_DISPATCH(TargetArithmetic)(); }

namespace {

float FloorMod(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

float Power(float a, float b) { return std::pow(a, b); }

// Functions that have no vector form here.
template <float (*kFunction)(float, float), int kStepA, int kStepB>
void PlainLoop(const float* a, const float* b, float* y, int64_t n, VectorParams) {
  for (int64_t i = 0; i < n; ++i) y[i] = kFunction(a[i * kStepA], b[i * kStepB]);
}

// The powers that models are full of.
void PowerOfScalar(const float* a, const float* b, float* y, int64_t n, VectorParams params) {
  if (n == 0) return;
  const float power = b[0];
  if (power == 2.0f) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] * a[i];
  } else if (power == 3.0f) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] * a[i] * a[i];
  } else if (power == 1.0f) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i];
  } else if (power == -1.0f) {
    for (int64_t i = 0; i < n; ++i) y[i] = 1.0f / a[i];
  } else {
    PlainLoop<Power, 1, 0>(a, b, y, n, params);
  }
}

constexpr int64_t kPlainGrain = 1024;
constexpr VectorLoops kPlainLoops[] = {
    {.op = "Pow",
     .both = PlainLoop<Power, 1, 1>,
     .scalar_a = PlainLoop<Power, 0, 1>,
     .scalar_b = PowerOfScalar,
     .grain = kPlainGrain},
    {.op = "Mod",
     .both = PlainLoop<FloorMod, 1, 1>,
     .scalar_a = PlainLoop<FloorMod, 0, 1>,
     .scalar_b = PlainLoop<FloorMod, 1, 0>,
     .grain = kPlainGrain},
};

}  // namespace

const VectorLoops* FindVectorLoops(std::string_view op) {
  for (const auto& part : {ArithmeticLoops(), FunctionLoops(), ActivationLoops(),
                           std::span<const VectorLoops>(kPlainLoops)}) {
    for (const VectorLoops& loops : part) {
      if (loops.op == op) return &loops;
    }
  }
  return nullptr;
}

}  // namespace tutti
#endif  // HWY_ONCE
