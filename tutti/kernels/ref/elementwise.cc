// One value at a time: unary ops and AddN. Ops of several broadcast values are in
// elementwise_binary.cc and elementwise_select.cc.
#include <cmath>
#include <concepts>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/ref/scalar.h"

namespace tutti {
namespace {

using ref::Bits;
using ref::Wrap;

// `f` maps a value of type Compute<T> to one of the output's type. The shape function has made sure
// that T is a type for which `f` is meant; others are not instantiated.
template <typename F>
void AddUnary(KernelRegistry& registry, const char* op, F f) {
  const auto compute = [f](KernelContext& context) -> absl::Status {
    const Tensor& x = context.input(0);
    Tensor& y = context.output(0);
    VisitDType(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ref::Compute<T>;
      if constexpr (std::is_invocable_v<F, C>) {
        using R = std::conditional_t<std::is_same_v<std::invoke_result_t<F, C>, bool>, bool, T>;
        const T* from = x.data<T>();
        R* to = y.data<R>();
        for (int64_t i = 0; i < x.elements(); ++i) to[i] = R(f(C(from[i])));
      }
    });
    return absl::OkStatus();
  };
  AddFunctionKernel(registry, op, "ref", compute, {}, {{0, 0}});
}

template <typename C>
concept Floating = std::is_floating_point_v<C>;
template <typename C>
concept Number = !ref::kIsBool<C>;

absl::Status AddN(KernelContext& context) {
  Tensor& sum = context.output(0);
  VisitDType(sum.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ref::Compute<T>;
    T* to = sum.data<T>();
    for (int64_t i = 0; i < sum.elements(); ++i) {
      C total = C(context.input(0).data<T>()[i]);
      for (int k = 1; k < context.num_inputs(); ++k) {
        const C value = C(context.input(k).data<T>()[i]);
        if constexpr (std::is_integral_v<C>) {
          total = Wrap<C>(Bits(total) + Bits(value));
        } else {
          total += value;
        }
      }
      to[i] = T(total);
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterElementwiseRefKernels(KernelRegistry& registry) {
  AddUnary(registry, "Neg", []<Number C>(C x) -> C {
    if constexpr (Floating<C>) return -x;
    return Wrap<C>(uint64_t{0} - Bits(x));
  });
  AddUnary(registry, "Abs", []<Number C>(C x) -> C {
    if constexpr (Floating<C>) return std::abs(x);
    return x < 0 ? Wrap<C>(uint64_t{0} - Bits(x)) : x;
  });
  AddUnary(registry, "Sign", []<Number C>(C x) -> C {
    if (x != x) return x;
    return C((x > 0) - (x < 0));
  });
  AddUnary(registry, "Square", []<Number C>(C x) -> C {
    if constexpr (Floating<C>) return x * x;
    return Wrap<C>(Bits(x) * Bits(x));
  });
  AddUnary(registry, "Sqrt", []<Floating C>(C x) -> C { return std::sqrt(x); });
  AddUnary(registry, "Rsqrt", []<Floating C>(C x) -> C { return C(1) / std::sqrt(x); });
  AddUnary(registry, "Exp", []<Floating C>(C x) -> C { return std::exp(x); });
  AddUnary(registry, "Log", []<Floating C>(C x) -> C { return std::log(x); });
  AddUnary(registry, "Log1p", []<Floating C>(C x) -> C { return std::log1p(x); });
  AddUnary(registry, "Sin", []<Floating C>(C x) -> C { return std::sin(x); });
  AddUnary(registry, "Cos", []<Floating C>(C x) -> C { return std::cos(x); });
  AddUnary(registry, "Erf", []<Floating C>(C x) -> C { return std::erf(x); });
  AddUnary(registry, "Floor", []<Floating C>(C x) -> C { return std::floor(x); });
  AddUnary(registry, "Ceil", []<Floating C>(C x) -> C { return std::ceil(x); });
  // nearbyint rounds halves to even in the rounding mode that every thread starts with.
  AddUnary(registry, "Round", []<Floating C>(C x) -> C { return std::nearbyint(x); });
  AddUnary(registry, "IsFinite", []<Floating C>(C x) -> bool { return std::isfinite(x); });
  AddUnary(registry, "LogicalNot", [](std::same_as<bool> auto x) -> bool { return !x; });
  AddFunctionKernel(registry, "AddN", "ref", AddN, {}, {{0, 0}});
  RegisterElementwiseBinaryRefKernels(registry);
  RegisterElementwiseSelectRefKernels(registry);
}

}  // namespace tutti
