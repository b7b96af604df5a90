// Float32 in, bool out: comparisons and IsFinite; and the other way: Select.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/elementwise_compare.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef TUTTI_KERNELS_CPU_ELEMENTWISE_COMPARE_ONCE
#define TUTTI_KERNELS_CPU_ELEMENTWISE_COMPARE_ONCE

#include <array>
#include <cstring>
#include <limits>

#include "tutti/kernels/cpu/elementwise_kernels.h"

namespace tutti {

// The loops of this file. Steps are 0 or 1: whether an array moves along or is a single value.
struct CompareLoops {
  std::array<PairLoop<float, bool>, 6> compare;  // in the order of kComparisons
  void (*is_finite)(const float* x, bool* y, int64_t n);
  void (*select)(const bool* condition, int step_condition, const float* a, int step_a,
                 const float* b, int step_b, float* y, int64_t n);
};

inline constexpr std::array<const char*, 6> kComparisons = {
    "Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"};

}  // namespace tutti
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using FloatTag = hn::ScalableTag<float>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
constexpr size_t kMostLanes = hn::MaxLanes(FloatTag());

// n <= Lanes() elements from p, or the single one repeated; the rest is zero.
HWY_INLINE hn::Vec<FloatTag> LoadSome(FloatTag d, const float* p, int step, int64_t n) {
  if (step == 0) return hn::Set(d, *p);
  if (n == int64_t(hn::Lanes(d))) return hn::LoadU(d, p);
  HWY_ALIGN float some[kMostLanes] = {};
  std::memcpy(some, p, size_t(n) * sizeof(float));
  return hn::Load(d, some);
}

template <class M>
HWY_INLINE void StoreBools(FloatTag d, M mask, bool* y, int64_t n) {
  const hn::RebindToSigned<FloatTag> di;
  const ByteTag bytes;
  const auto ones = hn::IfThenElseZero(hn::RebindMask(di, mask), hn::Set(di, 1));
  HWY_ALIGN uint8_t some[kMostLanes];
  hn::StoreU(hn::DemoteTo(bytes, ones), bytes, some);
  std::memcpy(y, some, size_t(n));
  (void)d;
}

template <class F>
void CompareLoop(const float* a, int step_a, const float* b, int step_b, bool* y, int64_t n) {
  const FloatTag d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = n - i < lanes ? n - i : lanes;
    const auto va = LoadSome(d, a + i * step_a, step_a, count);
    const auto vb = LoadSome(d, b + i * step_b, step_b, count);
    StoreBools(d, F()(va, vb), y + i, count);
  }
}

#define TUTTI_COMPARISON(Name, Function)         \
  struct Name {                                  \
    template <class V>                           \
    HWY_INLINE auto operator()(V a, V b) const { \
      return hn::Function(a, b);                 \
    }                                            \
  };
TUTTI_COMPARISON(VecGt, Gt)
TUTTI_COMPARISON(VecGe, Ge)
TUTTI_COMPARISON(VecLt, Lt)
TUTTI_COMPARISON(VecLe, Le)
TUTTI_COMPARISON(VecEq, Eq)
#undef TUTTI_COMPARISON
// Highway's Ne is false for NaN; NotEqual is true.
struct VecNe {
  template <class V>
  HWY_INLINE auto operator()(V a, V b) const {
    return hn::Not(hn::Eq(a, b));
  }
};

void IsFiniteLoop(const float* x, bool* y, int64_t n) {
  const FloatTag d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = n - i < lanes ? n - i : lanes;
    StoreBools(d, hn::Le(hn::Abs(LoadSome(d, x + i, 1, count)), largest), y + i, count);
  }
}

void SelectLoop(const bool* condition, int step_condition, const float* a, int step_a,
                const float* b, int step_b, float* y, int64_t n) {
  const FloatTag d;
  const ByteTag bytes;
  const hn::RebindToSigned<FloatTag> di;
  const int64_t lanes = int64_t(hn::Lanes(d));
  HWY_ALIGN uint8_t flags[kMostLanes] = {};
  HWY_ALIGN float rest[kMostLanes] = {};
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = n - i < lanes ? n - i : lanes;
    if (step_condition == 1) {
      std::memcpy(flags, condition + i, size_t(count));
    } else {
      std::memset(flags, *condition ? 1 : 0, sizeof flags);
    }
    const auto wide = hn::PromoteTo(di, hn::LoadU(bytes, flags));
    const auto mask = hn::RebindMask(d, hn::Ne(wide, hn::Zero(di)));
    const auto chosen = hn::IfThenElse(mask, LoadSome(d, a + i * step_a, step_a, count),
                                       LoadSome(d, b + i * step_b, step_b, count));
    if (count == lanes) {
      hn::StoreU(chosen, d, y + i);
    } else {
      hn::Store(chosen, d, rest);
      std::memcpy(y + i, rest, size_t(count) * sizeof(float));
    }
  }
}

constexpr CompareLoops kLoops = {
    .compare = {CompareLoop<VecGt>, CompareLoop<VecGe>, CompareLoop<VecLt>, CompareLoop<VecLe>,
                CompareLoop<VecEq>, CompareLoop<VecNe>},
    .is_finite = IsFiniteLoop,
    .select = SelectLoop};

}  // namespace

const CompareLoops* TargetCompareLoops() { return &kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(TargetCompareLoops);

namespace {

constexpr int64_t kGrain = 16384;

const CompareLoops& Loops() { return *HWY_DYNAMIC_DISPATCH(TargetCompareLoops)(); }

absl::Status IsFinite(KernelContext& context) {
  const float* x = context.input(0).data<float>();
  bool* y = context.output(0).data<bool>();
  context.team().ParallelFor(context.input(0).elements(), kGrain, [&](int64_t begin, int64_t end) {
    Loops().is_finite(x + begin, y + begin, end - begin);
  });
  return absl::OkStatus();
}

// Its first input is bool, so this is the kernel for every dtype: float32 by vectors, what is as
// wide by the same bits, the others element by element.
absl::Status Select(KernelContext& context) {
  const Tensor& condition = context.input(0);
  const Tensor& a = context.input(1);
  const Tensor& b = context.input(2);
  Tensor& y = context.output(0);
  const Shape shapes[] = {condition.shape(), a.shape(), b.shape()};
  const Broadcast broadcast(y.shape(), shapes);
  const size_t size = SizeOf(y.dtype());
  context.team().ParallelFor(broadcast.elements(), kGrain, [&](int64_t begin, int64_t end) {
    broadcast.ForEachRun(begin, end, [&](int64_t position, int64_t count, const auto& offsets) {
      const bool* flags = condition.data<bool>() + offsets[0];
      if (size == sizeof(float)) {
        Loops().select(flags, broadcast.step(0), a.data<float>() + offsets[1], broadcast.step(1),
                       b.data<float>() + offsets[2], broadcast.step(2), y.data<float>() + position,
                       count);
        return;
      }
      const auto* from_a = a.data<std::byte>() + offsets[1] * int64_t(size);
      const auto* from_b = b.data<std::byte>() + offsets[2] * int64_t(size);
      auto* to = y.data<std::byte>() + position * int64_t(size);
      for (int64_t i = 0; i < count; ++i) {
        const bool flag = flags[i * broadcast.step(0)];
        const auto* from = flag ? from_a + i * broadcast.step(1) * int64_t(size)
                                : from_b + i * broadcast.step(2) * int64_t(size);
        std::memmove(to + i * int64_t(size), from, size);
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterCompareCpuKernels(KernelRegistry& registry) {
  for (size_t i = 0; i < kComparisons.size(); ++i) {
    const PairLoop<float, bool> loop = Loops().compare[i];
    AddFunctionKernel(
        registry, kComparisons[i], "cpu",
        [loop](KernelContext& context) { return RunBroadcastPair(context, loop, kGrain); },
        {kFloat32});
  }
  AddFunctionKernel(registry, "IsFinite", "cpu", IsFinite, {kFloat32});
  AddFunctionKernel(registry, "Select", "cpu", Select, {}, {{1, 0}, {2, 0}});
}

}  // namespace tutti
#endif  // HWY_ONCE
