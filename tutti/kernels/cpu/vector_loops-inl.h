// How a function of vectors becomes a loop over arrays. Include after hwy/foreach_target.h.
#if defined(TUTTI_KERNELS_CPU_VECTOR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_CPU_VECTOR_LOOPS_INL_H_
#undef TUTTI_KERNELS_CPU_VECTOR_LOOPS_INL_H_
#else
#define TUTTI_KERNELS_CPU_VECTOR_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "tutti/kernels/cpu/vector_loops.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The last elements, fewer than a vector, pass through buffers: nothing past the end is touched,
// and an array that is read and written at once stays right.
template <class F>
void UnaryLoop(const float* x, float* y, int64_t n, VectorParams params) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const F f;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto first = f(d, hn::LoadU(d, x + i), params);
    const auto second = f(d, hn::LoadU(d, x + i + lanes), params);
    hn::StoreU(first, d, y + i);
    hn::StoreU(second, d, y + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i), params), d, y + i);
  if (i == n) return;
  HWY_ALIGN float rest[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  std::memcpy(rest, x + i, size_t(n - i) * sizeof(float));
  hn::Store(f(d, hn::Load(d, rest), params), d, rest);
  std::memcpy(y + i, rest, size_t(n - i) * sizeof(float));
}

// kStepA, kStepB: whether a and b move along or stand still.
template <class F, bool kStepA, bool kStepB>
void BinaryLoop(const float* a, const float* b, float* y, int64_t n, VectorParams params) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const F f;
  const auto all_a = hn::Set(d, n > 0 ? a[0] : 0.0f);
  const auto all_b = hn::Set(d, n > 0 ? b[0] : 0.0f);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a0 = kStepA ? hn::LoadU(d, a + i) : all_a;
    const auto b0 = kStepB ? hn::LoadU(d, b + i) : all_b;
    const auto a1 = kStepA ? hn::LoadU(d, a + i + lanes) : all_a;
    const auto b1 = kStepB ? hn::LoadU(d, b + i + lanes) : all_b;
    const auto first = f(d, a0, b0, params);
    const auto second = f(d, a1, b1, params);
    hn::StoreU(first, d, y + i);
    hn::StoreU(second, d, y + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) {
    const auto va = kStepA ? hn::LoadU(d, a + i) : all_a;
    const auto vb = kStepB ? hn::LoadU(d, b + i) : all_b;
    hn::StoreU(f(d, va, vb, params), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN float rest_a[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  HWY_ALIGN float rest_b[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  const size_t bytes = size_t(n - i) * sizeof(float);
  if (kStepA) std::memcpy(rest_a, a + i, bytes);
  if (kStepB) std::memcpy(rest_b, b + i, bytes);
  const auto va = kStepA ? hn::Load(d, rest_a) : all_a;
  const auto vb = kStepB ? hn::Load(d, rest_b) : all_b;
  hn::Store(f(d, va, vb, params), d, rest_a);
  std::memcpy(y + i, rest_a, bytes);
}

inline constexpr int64_t kCheapGrain = 16384;
inline constexpr int64_t kCostlyGrain = 4096;  // for functions of some ten instructions and more

template <class F>
constexpr VectorLoops UnaryOp(std::string_view op, int64_t grain = kCheapGrain) {
  return {.op = op, .unary = UnaryLoop<F>, .grain = grain};
}

// Of equal shapes only.
template <class F>
constexpr VectorLoops PairOp(std::string_view op, int64_t grain = kCheapGrain) {
  return {.op = op, .both = BinaryLoop<F, true, true>, .grain = grain};
}

template <class F>
constexpr VectorLoops BinaryOp(std::string_view op, int64_t grain = kCheapGrain) {
  return {.op = op,
          .both = BinaryLoop<F, true, true>,
          .scalar_a = BinaryLoop<F, false, true>,
          .scalar_b = BinaryLoop<F, true, false>,
          .grain = grain};
}

// A function of vectors as a type that the templates above take.
#define TUTTI_VECTOR_UNARY(Name, ...)                                                           \
  struct Name {                                                                                 \
    template <class D, class V>                                                                 \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, [[maybe_unused]] VectorParams p) const { \
      __VA_ARGS__                                                                               \
    }                                                                                           \
  };
#define TUTTI_VECTOR_BINARY(Name, ...)                               \
  struct Name {                                                      \
    template <class D, class V>                                      \
    HWY_INLINE V operator()([[maybe_unused]] D d, V a, V b,          \
                            [[maybe_unused]] VectorParams p) const { \
      __VA_ARGS__                                                    \
    }                                                                \
  };

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
