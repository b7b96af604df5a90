// The inner loops of one value: arithmetic and the functions of mathematics.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/vector_functions.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tutti/kernels/cpu/vector_loops-inl.h"
#include "tutti/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

// The macros' bodies use the names d, x, p.
TUTTI_VECTOR_UNARY(VecNeg, return hn::Neg(x);)
TUTTI_VECTOR_UNARY(VecAbs, return hn::Abs(x);)
TUTTI_VECTOR_UNARY(VecSign, const V zero = hn::Zero(d); const V one = hn::Set(d, 1.0f);
                   const V positive = hn::IfThenElse(hn::Gt(x, zero), one, x);
                   return hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one), positive);)
TUTTI_VECTOR_UNARY(VecSquare, return hn::Mul(x, x);)
TUTTI_VECTOR_UNARY(VecSqrt, return hn::Sqrt(x);)
TUTTI_VECTOR_UNARY(VecRsqrt, return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));)
TUTTI_VECTOR_UNARY(VecFloor, return hn::Floor(x);)
TUTTI_VECTOR_UNARY(VecCeil, return hn::Ceil(x);)
TUTTI_VECTOR_UNARY(VecRound, return hn::Round(x);)
TUTTI_VECTOR_UNARY(VecClip, return ClampKeepingNan(d, x, p.first, p.second);)
TUTTI_VECTOR_UNARY(VecExp, return VExp(d, x);)
TUTTI_VECTOR_UNARY(VecLog, return VLog(d, x);)
TUTTI_VECTOR_UNARY(VecLog1p, return VLog1p(d, x);)
TUTTI_VECTOR_UNARY(VecErf, return VErf(d, x);)
TUTTI_VECTOR_UNARY(VecSin, return VSin(d, x);)
TUTTI_VECTOR_UNARY(VecCos, return VCos(d, x);)

constexpr VectorLoops kLoops[] = {
    UnaryOp<VecNeg>("Neg"),
    UnaryOp<VecAbs>("Abs"),
    UnaryOp<VecSign>("Sign"),
    UnaryOp<VecSquare>("Square"),
    UnaryOp<VecSqrt>("Sqrt"),
    UnaryOp<VecRsqrt>("Rsqrt"),
    UnaryOp<VecFloor>("Floor"),
    UnaryOp<VecCeil>("Ceil"),
    UnaryOp<VecRound>("Round"),
    UnaryOp<VecClip>("Clip"),
    UnaryOp<VecExp>("Exp", kCostlyGrain),
    UnaryOp<VecLog>("Log", kCostlyGrain),
    UnaryOp<VecLog1p>("Log1p", kCostlyGrain),
    UnaryOp<VecErf>("Erf", kCostlyGrain),
    UnaryOp<VecSin>("Sin", kCostlyGrain),
    UnaryOp<VecCos>("Cos", kCostlyGrain),
};

}  // namespace

std::span<const VectorLoops> TargetFunctions() { return kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(TargetFunctions);

std::span<const VectorLoops> FunctionLoops() { return HWY_DYNAMIC_DISPATCH(TargetFunctions)(); }

}  // namespace tutti
#endif  // HWY_ONCE
