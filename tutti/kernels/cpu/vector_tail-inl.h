// Loads and stores of the last elements of a row, fewer than a vector, that never touch memory
// behind it. Included once per Highway target.
#if defined(TUTTI_KERNELS_CPU_VECTOR_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_CPU_VECTOR_TAIL_INL_H_
#undef TUTTI_KERNELS_CPU_VECTOR_TAIL_INL_H_
#else
#define TUTTI_KERNELS_CPU_VECTOR_TAIL_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// count < Lanes(d) elements from p, the lanes behind them set to `fill`.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<D> LoadTail(D d, const float* HWY_RESTRICT p, size_t count,
                                                  hwy::HWY_NAMESPACE::VFromD<D> fill) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET <= HWY_AVX2
  const auto mask = hn::FirstN(d, count);
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), fill);
#else
  HWY_ALIGN float copy[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(fill, d, copy);
  for (size_t i = 0; i < count; ++i) copy[i] = p[i];
  return hn::Load(d, copy);
#endif
}

// The first count < Lanes(d) lanes of v to p.
template <class D>
HWY_INLINE void StoreTail(hwy::HWY_NAMESPACE::VFromD<D> v, D d, float* HWY_RESTRICT p,
                          size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, count), d, p);
#else
  HWY_ALIGN float copy[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, copy);
  for (size_t i = 0; i < count; ++i) p[i] = copy[i];
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_CPU_VECTOR_TAIL_INL_H_
