// Bools in, bools out: a bool is a byte of 0 or 1, so the operations are those of bits, on as many
// bytes at a time as a vector has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/elementwise_logical.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first, so that what follows is compiled once a target.
#include <hwy/highway.h>

#ifndef TUTTI_KERNELS_CPU_ELEMENTWISE_LOGICAL_ONCE
#define TUTTI_KERNELS_CPU_ELEMENTWISE_LOGICAL_ONCE

#include <utility>

#include "tutti/kernels/cpu/elementwise_kernels.h"

namespace tutti {

// The loops of this file.
struct LogicalLoops {
  PairLoop<uint8_t, uint8_t> both;
  PairLoop<uint8_t, uint8_t> either;
  void (*negate)(const uint8_t* x, uint8_t* y, int64_t n);
};

}  // namespace tutti
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using ByteTag = hn::ScalableTag<uint8_t>;

template <bool kAnd>
void LogicalLoop(const uint8_t* a, int step_a, const uint8_t* b, int step_b, uint8_t* y,
                 int64_t n) {
  const ByteTag d;
  const auto lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto va = step_a == 0 ? hn::Set(d, *a) : hn::LoadU(d, a + i);
    const auto vb = step_b == 0 ? hn::Set(d, *b) : hn::LoadU(d, b + i);
    hn::StoreU(kAnd ? hn::And(va, vb) : hn::Or(va, vb), d, y + i);
  }
  for (; i < n; ++i) {
    y[i] = kAnd ? a[i * step_a] & b[i * step_b] : a[i * step_a] | b[i * step_b];
  }
}

void NegateLoop(const uint8_t* x, uint8_t* y, int64_t n) {
  const ByteTag d;
  const auto lanes = int64_t(hn::Lanes(d));
  const auto one = hn::Set(d, uint8_t{1});
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, x + i), one), d, y + i);
  for (; i < n; ++i) y[i] = x[i] ^ 1;
}

constexpr LogicalLoops kLoops = {
    .both = LogicalLoop<true>, .either = LogicalLoop<false>, .negate = NegateLoop};

}  // namespace

const LogicalLoops* TargetLogicalLoops() { return &kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(TargetLogicalLoops);

namespace {

constexpr int64_t kGrain = 65536;

const LogicalLoops& Loops() { return *HWY_DYNAMIC_DISPATCH(TargetLogicalLoops)(); }

absl::Status RunNot(KernelContext& context) {
  const auto* const x = static_cast<const uint8_t*>(context.input(0).raw());
  auto* const y = static_cast<uint8_t*>(context.output(0).raw());
  context.team().ParallelFor(context.input(0).elements(), kGrain, [&](int64_t begin, int64_t end) {
    Loops().negate(x + begin, y + begin, end - begin);
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterLogicalCpuKernels(KernelRegistry& registry) {
  for (const auto& [op, loop] :
       {std::pair{"LogicalAnd", Loops().both}, {"LogicalOr", Loops().either}}) {
    AddFunctionKernel(
        registry, op, "cpu",
        [loop = loop](KernelContext& context) { return RunBroadcastPair(context, loop, kGrain); },
        {kBool}, {{0, 0}, {1, 0}});
  }
  AddFunctionKernel(registry, "LogicalNot", "cpu", RunNot, {kBool}, {{0, 0}});
}

}  // namespace tutti
#endif  // HWY_ONCE
