// The rules of the optimizers, one element at a time, as graph/ops/update.h states them. 16-bit
// types are computed in float.
#include <cmath>
#include <type_traits>

#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/update/update_kernel.h"

namespace tutti {
namespace {

// One element: `w` and its slots `a` and `b` (unused ones are ignored) by the scaled gradient `g`.
template <UpdateRule kRule, typename C>
void UpdateElement(const UpdateParameters& p, C g, C& w, C& a, C& b) {
  const C lr = C(p.learning_rate);
  if constexpr (kRule == UpdateRule::kGradientDescent) {
    w -= lr * g;
  } else if constexpr (kRule == UpdateRule::kMomentum) {
    a = C(p.momentum) * a + g;
    w -= lr * (p.nesterov ? g + C(p.momentum) * a : a);
  } else if constexpr (kRule == UpdateRule::kAdagrad) {
    a += g * g;
    w -= lr * g / (std::sqrt(a) + C(p.epsilon));
  } else if constexpr (kRule == UpdateRule::kRMSProp) {
    a = C(p.rho) * a + C(1 - p.rho) * g * g;
    w -= lr * g / (std::sqrt(a) + C(p.epsilon));
  } else if constexpr (kRule == UpdateRule::kRMSPropMomentum) {
    a = C(p.rho) * a + C(1 - p.rho) * g * g;
    b = C(p.momentum) * b + g / (std::sqrt(a) + C(p.epsilon));
    w -= lr * b;
  } else if constexpr (kRule == UpdateRule::kAdam || kRule == UpdateRule::kAdamW) {
    if constexpr (kRule == UpdateRule::kAdamW) w -= lr * C(p.weight_decay) * w;
    a = C(p.beta1) * a + C(1 - p.beta1) * g;
    b = C(p.beta2) * b + C(1 - p.beta2) * g * g;
    w -= lr * (a / C(p.correction1)) / (std::sqrt(b / C(p.correction2)) + C(p.epsilon));
  } else {
    const C n = a + g * g;
    b += g - (std::sqrt(n) - std::sqrt(a)) / lr * w;
    a = n;
    const C l1 = C(p.l1);
    const C slope = (C(p.beta) + std::sqrt(n)) / lr + C(p.l2);
    w = std::abs(b) <= l1 ? C(0) : ((b > 0 ? l1 : -l1) - b) / slope;
  }
}

template <UpdateRule kRule, typename T>
void UpdateRange(const UpdateParameters& p, void* const* state, const void* gradient,
                 int64_t count) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* const variable = static_cast<T*>(state[0]);
  T* const slot_a = static_cast<T*>(state[1]);
  T* const slot_b = static_cast<T*>(state[2]);
  const T* const g = static_cast<const T*>(gradient);
  for (int64_t i = 0; i < count; ++i) {
    C w = C(variable[i]);
    C a = slot_a != nullptr ? C(slot_a[i]) : C(0);
    C b = slot_b != nullptr ? C(slot_b[i]) : C(0);
    UpdateElement<kRule, C>(p, C(p.scale) * C(g[i]), w, a, b);
    variable[i] = T(w);
    if (slot_a != nullptr) slot_a[i] = T(a);
    if (slot_b != nullptr) slot_b[i] = T(b);
  }
}

template <typename T>
UpdateFunction Loop(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::kGradientDescent:
      return UpdateRange<UpdateRule::kGradientDescent, T>;
    case UpdateRule::kMomentum:
      return UpdateRange<UpdateRule::kMomentum, T>;
    case UpdateRule::kAdagrad:
      return UpdateRange<UpdateRule::kAdagrad, T>;
    case UpdateRule::kRMSProp:
      return UpdateRange<UpdateRule::kRMSProp, T>;
    case UpdateRule::kRMSPropMomentum:
      return UpdateRange<UpdateRule::kRMSPropMomentum, T>;
    case UpdateRule::kAdam:
      return UpdateRange<UpdateRule::kAdam, T>;
    case UpdateRule::kAdamW:
      return UpdateRange<UpdateRule::kAdamW, T>;
    case UpdateRule::kFtrl:
      return UpdateRange<UpdateRule::kFtrl, T>;
  }
  return nullptr;
}

UpdateFunction ReferenceLoop(UpdateRule rule, DType dtype) {
  switch (dtype) {
    case kFloat32:
      return Loop<float>(rule);
    case kFloat64:
      return Loop<double>(rule);
    case kFloat16:
      return Loop<Float16>(rule);
    case kBFloat16:
      return Loop<BFloat16>(rule);
    default:
      return nullptr;
  }
}

}  // namespace

void RegisterUpdateRefKernels(KernelRegistry& registry) {
  AddUpdateKernels(registry, "ref", {kFloat32, kFloat64, kFloat16, kBFloat16}, ReferenceLoop);
}

}  // namespace tutti
