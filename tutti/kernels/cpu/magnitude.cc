// Magnitudes are compared as integers: without its sign bit a float's bits grow with its value, and
// those of infinity and NaN are the largest of all. So the maximum needs no care for NaN.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/magnitude.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "tutti/kernels/cpu/magnitude.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest of the bits of n floats without their signs.
int32_t LargestBits(const float* x, int64_t n) {
  const hn::ScalableTag<int32_t> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto* bits = reinterpret_cast<const int32_t*>(x);
  const auto magnitude = hn::Set(d, 0x7fffffff);
  auto m0 = hn::Zero(d), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::And(hn::LoadU(d, bits + i), magnitude));
    m1 = hn::Max(m1, hn::And(hn::LoadU(d, bits + i + lanes), magnitude));
    m2 = hn::Max(m2, hn::And(hn::LoadU(d, bits + i + 2 * lanes), magnitude));
    m3 = hn::Max(m3, hn::And(hn::LoadU(d, bits + i + 3 * lanes), magnitude));
  }
  m0 = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  int32_t largest = hn::GetLane(hn::MaxOfLanes(d, m0));
  for (; i < n; ++i) largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return largest;
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {
HWY_EXPORT(LargestBits);
}  // namespace

float LargestMagnitude(const Team& team, const float* x, int64_t n) {
  std::atomic<int32_t> largest{0};
  team.ParallelFor(n, 65536, [&](int64_t begin, int64_t end) {
    const int32_t mine = HWY_DYNAMIC_DISPATCH(LargestBits)(x + begin, end - begin);
    int32_t seen = largest.load(std::memory_order_relaxed);
    while (mine > seen && !largest.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
    }
  });
  const auto value = std::bit_cast<float>(largest.load(std::memory_order_relaxed));
  return value <= std::numeric_limits<float>::max() ? value
                                                    : std::numeric_limits<float>::infinity();
}

}  // namespace tutti
#endif  // HWY_ONCE
