// The inner loops of the activations and of their gradients.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/vector_activations.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tutti/kernels/cpu/vector_loops-inl.h"
#include "tutti/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

// The approximate Gelu is x/2 (1 + tanh(u)) with u = kGelu1 x + kGelu3 x^3.
constexpr float kGelu1 = 0.79788456080286536f;
constexpr float kGelu3 = 0.79788456080286536f * 0.044715f;

HWY_INLINE FloatVec GeluTanhOf(FloatTag d, FloatVec x, FloatVec square) {
  return VTanh(d, hn::Mul(x, hn::MulAdd(square, hn::Set(d, kGelu3), hn::Set(d, kGelu1))));
}

// The macros' bodies use the names d, x, p.
TUTTI_VECTOR_UNARY(VecRelu, return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);)
TUTTI_VECTOR_UNARY(VecRelu6, return ClampKeepingNan(d, x, 0.0f, 6.0f);)
TUTTI_VECTOR_UNARY(VecLeakyRelu, return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x,
                                                       hn::Mul(x, hn::Set(d, p.first)));)
TUTTI_VECTOR_UNARY(VecElu, return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x,
                                                 hn::Mul(VExpm1(d, x), hn::Set(d, p.first)));)
TUTTI_VECTOR_UNARY(VecSigmoid, return VSigmoid(d, x);)
TUTTI_VECTOR_UNARY(VecTanh, return VTanh(d, x);)
TUTTI_VECTOR_UNARY(VecSoftplus, const V log = VLog1p(d, VExp(d, hn::Neg(hn::Abs(x))));
                   return hn::Add(log, hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x));)
TUTTI_VECTOR_UNARY(VecGelu, V gauss; return hn::Mul(x, NormalCdf(d, x, &gauss));)
TUTTI_VECTOR_UNARY(VecGeluTanh, const V half = hn::Mul(x, hn::Set(d, 0.5f));
                   return hn::MulAdd(half, GeluTanhOf(d, x, hn::Mul(x, x)), half);)

// a is the gradient; b the function's result, or its argument for Softplus and Gelu.
TUTTI_VECTOR_BINARY(VecReluGrad, return hn::IfThenElseZero(hn::Gt(b, hn::Zero(d)), a);)
TUTTI_VECTOR_BINARY(VecRelu6Grad, return hn::IfThenElseZero(hn::And(hn::Gt(b, hn::Zero(d)),
                                                                    hn::Lt(b, hn::Set(d, 6.0f))),
                                                            a);)
TUTTI_VECTOR_BINARY(VecLeakyReluGrad, return hn::IfThenElse(hn::Gt(b, hn::Zero(d)), a,
                                                            hn::Mul(a, hn::Set(d, p.first)));)
TUTTI_VECTOR_BINARY(VecEluGrad, return hn::IfThenElse(hn::Gt(b, hn::Zero(d)), a,
                                                      hn::Mul(a, hn::Add(b, hn::Set(d, p.first))));)
TUTTI_VECTOR_BINARY(VecSigmoidGrad, return hn::Mul(hn::Mul(a, b), hn::Sub(hn::Set(d, 1.0f), b));)
TUTTI_VECTOR_BINARY(VecTanhGrad, return hn::Mul(a, hn::NegMulAdd(b, b, hn::Set(d, 1.0f)));)
TUTTI_VECTOR_BINARY(VecSoftplusGrad, return hn::Mul(a, VSigmoid(d, b));)
TUTTI_VECTOR_BINARY(VecGeluGrad, V gauss; const V cdf = NormalCdf(d, b, &gauss);
                    const V density = hn::Mul(gauss, hn::Set(d, 0.39894228040143268f));
                    return hn::Mul(a, hn::MulAdd(b, density, cdf));)
TUTTI_VECTOR_BINARY(VecGeluTanhGrad, const V half = hn::Set(d, 0.5f);
                    const V square = hn::Mul(b, b); const V t = GeluTanhOf(d, b, square);
                    const V slope = hn::MulAdd(square, hn::Set(d, 3 * kGelu3), hn::Set(d, kGelu1));
                    const V bent = hn::Mul(hn::Mul(half, b),
                                           hn::Mul(hn::NegMulAdd(t, t, hn::Set(d, 1.0f)), slope));
                    return hn::Mul(a, hn::Add(hn::MulAdd(half, t, half), bent));)

constexpr VectorLoops kLoops[] = {
    UnaryOp<VecRelu>("Relu"),
    UnaryOp<VecRelu6>("Relu6"),
    UnaryOp<VecLeakyRelu>("LeakyRelu"),
    UnaryOp<VecElu>("Elu", kCostlyGrain),
    UnaryOp<VecSigmoid>("Sigmoid", kCostlyGrain),
    UnaryOp<VecTanh>("Tanh", kCostlyGrain),
    UnaryOp<VecSoftplus>("Softplus", kCostlyGrain),
    UnaryOp<VecGelu>("Gelu", kCostlyGrain),
    UnaryOp<VecGeluTanh>("GeluTanh", kCostlyGrain),
    PairOp<VecReluGrad>("ReluGrad"),
    PairOp<VecRelu6Grad>("Relu6Grad"),
    PairOp<VecLeakyReluGrad>("LeakyReluGrad"),
    PairOp<VecEluGrad>("EluGrad"),
    PairOp<VecSigmoidGrad>("SigmoidGrad"),
    PairOp<VecTanhGrad>("TanhGrad"),
    PairOp<VecSoftplusGrad>("SoftplusGrad", kCostlyGrain),
    PairOp<VecGeluGrad>("GeluGrad", kCostlyGrain),
    PairOp<VecGeluTanhGrad>("GeluTanhGrad", kCostlyGrain),
};

}  // namespace

std::span<const VectorLoops> TargetActivations() { return kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(TargetActivations);

std::span<const VectorLoops> ActivationLoops() { return HWY_DYNAMIC_DISPATCH(TargetActivations)(); }

}  // namespace tutti
#endif  // HWY_ONCE
