#include <cmath>
#include <numbers>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/ref/scalar.h"

namespace tutti {
namespace {

// What the functions below take beside values: the op's alpha, where it has one.
template <typename C>
C Alpha(const Node& node) {
  return node.HasAttr("alpha") ? C(node.attr<double>("alpha")) : C(0);
}

// Calls f with the C++ type of a floating-point dtype.
template <typename Visitor>
void VisitFloating(DType dtype, Visitor&& visitor) {
  VisitDType(dtype, [&](auto tag) {
    if constexpr (ref::kIsFloating<typename decltype(tag)::type>) visitor(tag);
  });
}

// f(x, alpha).
template <typename F>
void AddActivation(KernelRegistry& registry, const char* op, F f) {
  const auto compute = [f](KernelContext& context) -> absl::Status {
    VisitFloating(context.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ref::Compute<T>;
      const C alpha = Alpha<C>(*context.node);
      const T* x = context.input(0).template data<T>();
      T* y = context.output(0).template data<T>();
      for (int64_t i = 0; i < context.input(0).elements(); ++i) y[i] = T(f(C(x[i]), alpha));
    });
    return absl::OkStatus();
  };
  AddFunctionKernel(registry, op, "ref", compute, {}, {{0, 0}});
}

// f(gradient, y, alpha).
template <typename F>
void AddGradient(KernelRegistry& registry, const char* op, F f) {
  const auto compute = [f](KernelContext& context) -> absl::Status {
    VisitFloating(context.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ref::Compute<T>;
      const C alpha = Alpha<C>(*context.node);
      const T* gradient = context.input(0).template data<T>();
      const T* y = context.input(1).template data<T>();
      T* result = context.output(0).template data<T>();
      for (int64_t i = 0; i < context.input(0).elements(); ++i) {
        result[i] = T(f(C(gradient[i]), C(y[i]), alpha));
      }
    });
    return absl::OkStatus();
  };
  AddFunctionKernel(registry, op, "ref", compute, {}, {{0, 0}, {1, 0}});
}

// Neither branch overflows: exp() only sees what is not positive.
template <typename C>
C Logistic(C x) {
  const C e = std::exp(-std::abs(x));
  return (x < 0 ? e : C(1)) / (C(1) + e);
}

template <typename C>
C LogOnePlusExp(C x) {
  return (x > 0 ? x : C(0)) + std::log1p(std::exp(-std::abs(x)));
}

// Gelu and its derivative, exact and by tanh.
template <typename C>
struct GeluExact {
  static C Phi(C x) { return C(0.5) * std::erfc(-x * C(1 / std::numbers::sqrt2)); }
  static C Value(C x) { return x * Phi(x); }
  static C Slope(C x) {
    const C density = C(std::numbers::inv_sqrtpi / std::numbers::sqrt2) * std::exp(C(-0.5) * x * x);
    return Phi(x) + x * density;
  }
};

template <typename C>
struct GeluTanh {
  static constexpr C kScale = C(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  static constexpr C kCubic = C(0.044715);
  static C Tanh(C x) { return std::tanh(kScale * (x + kCubic * x * x * x)); }
  static C Value(C x) { return C(0.5) * x * (C(1) + Tanh(x)); }
  static C Slope(C x) {
    const C t = Tanh(x);
    return C(0.5) * (C(1) + t) +
           C(0.5) * x * (C(1) - t * t) * kScale * (C(1) + C(3) * kCubic * x * x);
  }
};

absl::Status Gelu(KernelContext& context) {
  const bool approximate = context.node->attr<bool>("approximate");
  VisitFloating(context.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ref::Compute<T>;
    const T* x = context.input(0).template data<T>();
    T* y = context.output(0).template data<T>();
    for (int64_t i = 0; i < context.input(0).elements(); ++i) {
      y[i] = T(approximate ? GeluTanh<C>::Value(C(x[i])) : GeluExact<C>::Value(C(x[i])));
    }
  });
  return absl::OkStatus();
}

absl::Status GeluGrad(KernelContext& context) {
  const bool approximate = context.node->attr<bool>("approximate");
  VisitFloating(context.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ref::Compute<T>;
    const T* gradient = context.input(0).template data<T>();
    const T* x = context.input(1).template data<T>();
    T* result = context.output(0).template data<T>();
    for (int64_t i = 0; i < context.input(0).elements(); ++i) {
      const C at = C(x[i]);
      result[i] =
          T(C(gradient[i]) * (approximate ? GeluTanh<C>::Slope(at) : GeluExact<C>::Slope(at)));
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterActivationRefKernels(KernelRegistry& registry) {
  // Comparisons are written so that NaN goes through.
  AddActivation(registry, "Relu", [](auto x, auto) { return x <= 0 ? decltype(x)(0) : x; });
  AddActivation(registry, "Relu6", [](auto x, auto) {
    using C = decltype(x);
    return x <= 0 ? C(0) : x >= 6 ? C(6) : x;
  });
  AddActivation(registry, "LeakyRelu", [](auto x, auto alpha) { return x > 0 ? x : alpha * x; });
  AddActivation(registry, "Elu",
                [](auto x, auto alpha) { return x > 0 ? x : alpha * std::expm1(x); });
  AddActivation(registry, "Sigmoid", [](auto x, auto) { return Logistic(x); });
  AddActivation(registry, "Tanh", [](auto x, auto) { return std::tanh(x); });
  AddActivation(registry, "Softplus", [](auto x, auto) { return LogOnePlusExp(x); });
  AddFunctionKernel(registry, "Gelu", "ref", Gelu, {}, {{0, 0}});

  AddGradient(registry, "ReluGrad",
              [](auto g, auto y, auto) { return y > 0 ? g : decltype(g)(0); });
  AddGradient(registry, "Relu6Grad",
              [](auto g, auto y, auto) { return y > 0 && y < 6 ? g : decltype(g)(0); });
  AddGradient(registry, "LeakyReluGrad",
              [](auto g, auto y, auto alpha) { return y > 0 ? g : alpha * g; });
  AddGradient(registry, "EluGrad",
              [](auto g, auto y, auto alpha) { return y > 0 ? g : g * (y + alpha); });
  AddGradient(registry, "SigmoidGrad",
              [](auto g, auto y, auto) { return g * y * (decltype(y)(1) - y); });
  AddGradient(registry, "TanhGrad",
              [](auto g, auto y, auto) { return g * (decltype(y)(1) - y * y); });
  AddGradient(registry, "SoftplusGrad", [](auto g, auto x, auto) { return g * Logistic(x); });
  AddFunctionKernel(registry, "GeluGrad", "ref", GeluGrad, {}, {{0, 0}, {1, 0}});
}

}  // namespace tutti
