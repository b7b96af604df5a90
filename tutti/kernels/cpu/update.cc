// The optimizer rules for float32 with Highway: one pass over variable, slots and gradient, as many
// lanes at a time as the machine has. The rest at the end goes through a small padded copy, so that
// there is one formula for each rule. The formulas are those of graph/ops/update.h; divisions by
// the bias corrections of Adam are multiplications by their inverse.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/update.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/update/update_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

// Each rule: a struct made from the parameters, with the number of its slots and an operator that
// changes a vector of the variable and its slots by one of the scaled gradient.
struct GradientDescentRule {
  static constexpr int kSlots = 0;
  Lanes d;
  Vector lr;
  explicit GradientDescentRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))) {}
  void operator()(Vector g, Vector& w, Vector&, Vector&) const { w = hn::NegMulAdd(lr, g, w); }
};

struct MomentumRule {
  static constexpr int kSlots = 1;
  Lanes d;
  Vector lr, momentum;
  explicit MomentumRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))), momentum(hn::Set(d, float(p.momentum))) {}
  void operator()(Vector g, Vector& w, Vector& a, Vector&) const {
    a = hn::MulAdd(momentum, a, g);
    w = hn::NegMulAdd(lr, a, w);
  }
};

struct NesterovRule {
  static constexpr int kSlots = 1;
  Lanes d;
  Vector lr, momentum;
  explicit NesterovRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))), momentum(hn::Set(d, float(p.momentum))) {}
  void operator()(Vector g, Vector& w, Vector& a, Vector&) const {
    a = hn::MulAdd(momentum, a, g);
    w = hn::NegMulAdd(lr, hn::MulAdd(momentum, a, g), w);
  }
};

struct AdagradRule {
  static constexpr int kSlots = 1;
  Lanes d;
  Vector lr, epsilon;
  explicit AdagradRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))), epsilon(hn::Set(d, float(p.epsilon))) {}
  void operator()(Vector g, Vector& w, Vector& a, Vector&) const {
    a = hn::MulAdd(g, g, a);
    w = hn::Sub(w, hn::Div(hn::Mul(lr, g), hn::Add(hn::Sqrt(a), epsilon)));
  }
};

struct RMSPropRule {
  static constexpr int kSlots = 1;
  Lanes d;
  Vector lr, epsilon, rho, rest;
  explicit RMSPropRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))),
        epsilon(hn::Set(d, float(p.epsilon))),
        rho(hn::Set(d, float(p.rho))),
        rest(hn::Set(d, float(1 - p.rho))) {}
  void operator()(Vector g, Vector& w, Vector& a, Vector&) const {
    a = hn::MulAdd(rho, a, hn::Mul(rest, hn::Mul(g, g)));
    w = hn::Sub(w, hn::Div(hn::Mul(lr, g), hn::Add(hn::Sqrt(a), epsilon)));
  }
};

struct RMSPropMomentumRule {
  static constexpr int kSlots = 2;
  Lanes d;
  Vector lr, epsilon, rho, rest, momentum;
  explicit RMSPropMomentumRule(const UpdateParameters& p)
      : lr(hn::Set(d, float(p.learning_rate))),
        epsilon(hn::Set(d, float(p.epsilon))),
        rho(hn::Set(d, float(p.rho))),
        rest(hn::Set(d, float(1 - p.rho))),
        momentum(hn::Set(d, float(p.momentum))) {}
  void operator()(Vector g, Vector& w, Vector& a, Vector& b) const {
    a = hn::MulAdd(rho, a, hn::Mul(rest, hn::Mul(g, g)));
    b = hn::MulAdd(momentum, b, hn::Div(g, hn::Add(hn::Sqrt(a), epsilon)));
    w = hn::NegMulAdd(lr, b, w);
  }
};

// Adam and, with a decay other than 0, AdamW.
struct AdamRule {
  static constexpr int kSlots = 2;
  Lanes d;
  Vector rate, keep, beta1, rest1, beta2, rest2, inverse2, epsilon;
  explicit AdamRule(const UpdateParameters& p)
      : rate(hn::Set(d, float(p.learning_rate / p.correction1))),
        keep(hn::Set(d, float(1 - p.learning_rate * p.weight_decay))),
        beta1(hn::Set(d, float(p.beta1))),
        rest1(hn::Set(d, float(1 - p.beta1))),
        beta2(hn::Set(d, float(p.beta2))),
        rest2(hn::Set(d, float(1 - p.beta2))),
        inverse2(hn::Set(d, float(1 / p.correction2))),
        epsilon(hn::Set(d, float(p.epsilon))) {}
  void operator()(Vector g, Vector& w, Vector& m, Vector& v) const {
    m = hn::MulAdd(beta1, m, hn::Mul(rest1, g));
    v = hn::MulAdd(beta2, v, hn::Mul(rest2, hn::Mul(g, g)));
    const Vector root = hn::Add(hn::Sqrt(hn::Mul(v, inverse2)), epsilon);
    w = hn::Sub(hn::Mul(w, keep), hn::Div(hn::Mul(rate, m), root));
  }
};

struct FtrlRule {
  static constexpr int kSlots = 2;
  Lanes d;
  Vector inverse_lr, l1, l2, beta;
  explicit FtrlRule(const UpdateParameters& p)
      : inverse_lr(hn::Set(d, float(1 / p.learning_rate))),
        l1(hn::Set(d, float(p.l1))),
        l2(hn::Set(d, float(p.l2))),
        beta(hn::Set(d, float(p.beta))) {}
  void operator()(Vector g, Vector& w, Vector& n, Vector& z) const {
    const Vector after = hn::MulAdd(g, g, n);
    const Vector root = hn::Sqrt(after);
    const Vector sigma = hn::Mul(hn::Sub(root, hn::Sqrt(n)), inverse_lr);
    z = hn::Add(z, hn::NegMulAdd(sigma, w, g));
    n = after;
    const Vector slope = hn::MulAdd(hn::Add(beta, root), inverse_lr, l2);
    const Vector step = hn::Div(hn::Sub(hn::CopySign(l1, z), z), slope);
    w = hn::IfThenZeroElse(hn::Le(hn::Abs(z), l1), step);
  }
};

template <typename Rule>
void Update(const UpdateParameters& p, void* const* state, const void* gradient, int64_t count) {
  const Lanes d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Rule rule(p);
  const Vector scale = hn::Set(d, float(p.scale));
  float* const w = static_cast<float*>(state[0]);
  float* const a = static_cast<float*>(state[1]);
  float* const b = static_cast<float*>(state[2]);
  const float* const g = static_cast<const float*>(gradient);
  const auto at = [&](float* pw, float* pa, float* pb, const float* pg) HWY_ATTR {
    Vector vw = hn::LoadU(d, pw);
    Vector va = hn::Zero(d);
    Vector vb = hn::Zero(d);
    if constexpr (Rule::kSlots > 0) va = hn::LoadU(d, pa);
    if constexpr (Rule::kSlots > 1) vb = hn::LoadU(d, pb);
    rule(hn::Mul(scale, hn::LoadU(d, pg)), vw, va, vb);
    hn::StoreU(vw, d, pw);
    if constexpr (Rule::kSlots > 0) hn::StoreU(va, d, pa);
    if constexpr (Rule::kSlots > 1) hn::StoreU(vb, d, pb);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    at(w + i, Rule::kSlots > 0 ? a + i : nullptr, Rule::kSlots > 1 ? b + i : nullptr, g + i);
  }
  if (i == count) return;
  constexpr size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);
  HWY_ALIGN float padded[4][kMostLanes] = {};
  float* const whole[] = {w, a, b};
  for (int64_t j = i; j < count; ++j) {
    for (int k = 0; k <= Rule::kSlots; ++k) padded[k][j - i] = whole[k][j];
    padded[3][j - i] = g[j];
  }
  at(padded[0], padded[1], padded[2], padded[3]);
  for (int64_t j = i; j < count; ++j) {
    for (int k = 0; k <= Rule::kSlots; ++k) whole[k][j] = padded[k][j - i];
  }
}

void UpdateGradientDescent(const UpdateParameters& p, void* const* state, const void* gradient,
                           int64_t count) {
  Update<GradientDescentRule>(p, state, gradient, count);
}
void UpdateMomentum(const UpdateParameters& p, void* const* state, const void* gradient,
                    int64_t count) {
  if (p.nesterov) {
    Update<NesterovRule>(p, state, gradient, count);
  } else {
    Update<MomentumRule>(p, state, gradient, count);
  }
}
void UpdateAdagrad(const UpdateParameters& p, void* const* state, const void* gradient,
                   int64_t count) {
  Update<AdagradRule>(p, state, gradient, count);
}
void UpdateRMSProp(const UpdateParameters& p, void* const* state, const void* gradient,
                   int64_t count) {
  Update<RMSPropRule>(p, state, gradient, count);
}
void UpdateRMSPropMomentum(const UpdateParameters& p, void* const* state, const void* gradient,
                           int64_t count) {
  Update<RMSPropMomentumRule>(p, state, gradient, count);
}
void UpdateAdam(const UpdateParameters& p, void* const* state, const void* gradient,
                int64_t count) {
  Update<AdamRule>(p, state, gradient, count);
}
void UpdateFtrl(const UpdateParameters& p, void* const* state, const void* gradient,
                int64_t count) {
  Update<FtrlRule>(p, state, gradient, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {

HWY_EXPORT(UpdateGradientDescent);
HWY_EXPORT(UpdateMomentum);
HWY_EXPORT(UpdateAdagrad);
HWY_EXPORT(UpdateRMSProp);
HWY_EXPORT(UpdateRMSPropMomentum);
HWY_EXPORT(UpdateAdam);
HWY_EXPORT(UpdateFtrl);

// The look-up for this machine happens here, once per prepared kernel.
UpdateFunction VectorLoop(UpdateRule rule, DType dtype) {
  if (dtype != kFloat32) return nullptr;
  // Before the first call the table answers with a detour that would be taken every time.
  if (!hwy::GetChosenTarget().IsInitialized()) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  switch (rule) {
    case UpdateRule::kGradientDescent:
      return &HWY_DYNAMIC_DISPATCH(UpdateGradientDescent);
    case UpdateRule::kMomentum:
      return &HWY_DYNAMIC_DISPATCH(UpdateMomentum);
    case UpdateRule::kAdagrad:
      return &HWY_DYNAMIC_DISPATCH(UpdateAdagrad);
    case UpdateRule::kRMSProp:
      return &HWY_DYNAMIC_DISPATCH(UpdateRMSProp);
    case UpdateRule::kRMSPropMomentum:
      return &HWY_DYNAMIC_DISPATCH(UpdateRMSPropMomentum);
    case UpdateRule::kAdam:
    case UpdateRule::kAdamW:
      return &HWY_DYNAMIC_DISPATCH(UpdateAdam);
    case UpdateRule::kFtrl:
      return &HWY_DYNAMIC_DISPATCH(UpdateFtrl);
  }
  return nullptr;
}

}  // namespace

void RegisterUpdateCpuKernels(KernelRegistry& registry) {
  AddUpdateKernels(registry, "cpu", {kFloat32}, VectorLoop);
}

}  // namespace tutti
#endif  // HWY_ONCE
