// How elements in memory become vectors to compute with, and back. Included once per Highway
// target.
//
// An element type names what lies in memory (Stored), what is computed with (Lane), and how the one
// becomes the other. The 16-bit types are stored as such and computed in float; they round to
// nearest even, as tutti/tensor/float16.h does, and a NaN stays one.
#if defined(TUTTI_COLLECTIVE_ELEMENT_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COLLECTIVE_ELEMENT_TYPES_INL_H_
#undef TUTTI_COLLECTIVE_ELEMENT_TYPES_INL_H_
#else
#define TUTTI_COLLECTIVE_ELEMENT_TYPES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "tutti/collective/communicator.h"
#include "tutti/tensor/float16.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::collective {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Element>
using LanesOf = hn::ScalableTag<typename Element::Lane>;
template <class Element>
using VectorOf = hn::Vec<LanesOf<Element>>;

// float, double, int32_t, int64_t: computed as they lie there.
template <typename T>
struct Plain {
  using Stored = T;
  using Lane = T;
  static HWY_INLINE VectorOf<Plain> Load(const T* p) { return hn::LoadU(LanesOf<Plain>(), p); }
  static HWY_INLINE void Store(VectorOf<Plain> v, T* p) { hn::StoreU(v, LanesOf<Plain>(), p); }
};

struct BFloat16Element {
  using Stored = uint16_t;
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using Bits = hn::RebindToUnsigned<D>;
  using Half = hn::Rebind<uint16_t, D>;

  static HWY_INLINE hn::Vec<D> Load(const uint16_t* p) {
    const auto wide = hn::PromoteTo(Bits(), hn::LoadU(Half(), p));
    return hn::BitCast(D(), hn::ShiftLeft<16>(wide));
  }
  static HWY_INLINE void Store(hn::Vec<D> v, uint16_t* p) {
    const Bits bits;
    const auto wide = hn::BitCast(bits, v);
    const auto odd = hn::And(hn::ShiftRight<16>(wide), hn::Set(bits, 1u));
    const auto rounded = hn::Add(wide, hn::Add(odd, hn::Set(bits, 0x7fffu)));
    const auto quiet = hn::Or(wide, hn::Set(bits, 0x400000u));  // a NaN must not round to infinity
    const auto is_nan = hn::RebindMask(bits, hn::IsNaN(v));
    const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(hn::RebindToSigned<D>(), upper)), Half(), p);
  }
};

// Highway's own conversions truncate and lose infinities where the machine has no instruction for
// them; there, lanes are converted one by one.
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
#define TUTTI_HAS_FLOAT16_CONVERSION 1
#else
#define TUTTI_HAS_FLOAT16_CONVERSION 0
#endif

struct Float16Element {
  using Stored = uint16_t;
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using Half = hn::Rebind<uint16_t, D>;
  using HalfFloat = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE hn::Vec<D> Load(const uint16_t* p) {
#if TUTTI_HAS_FLOAT16_CONVERSION
    return hn::PromoteTo(D(), hn::BitCast(HalfFloat(), hn::LoadU(Half(), p)));
#else
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    for (size_t i = 0; i < hn::Lanes(D()); ++i) lanes[i] = FloatFromFloat16Bits(p[i]);
    return hn::Load(D(), lanes);
#endif
  }
  static HWY_INLINE void Store(hn::Vec<D> v, uint16_t* p) {
#if TUTTI_HAS_FLOAT16_CONVERSION
    hn::StoreU(hn::BitCast(Half(), hn::DemoteTo(HalfFloat(), v)), Half(), p);
#else
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(v, D(), lanes);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) p[i] = Float16BitsFromFloat(lanes[i]);
#endif
  }
};

#undef TUTTI_HAS_FLOAT16_CONVERSION

// The last elements, fewer than a vector, go through a copy: nothing behind them is touched, and
// they meet the same instructions as all others. The other lanes are 0.
template <class Element>
HWY_INLINE VectorOf<Element> LoadFirst(const typename Element::Stored* p, size_t count) {
  HWY_ALIGN typename Element::Stored copy[hn::MaxLanes(LanesOf<Element>())] = {};
  std::memcpy(copy, p, count * sizeof(copy[0]));
  return Element::Load(copy);
}

template <class Element>
HWY_INLINE void StoreFirst(VectorOf<Element> v, typename Element::Stored* p, size_t count) {
  HWY_ALIGN typename Element::Stored copy[hn::MaxLanes(LanesOf<Element>())];
  Element::Store(v, copy);
  std::memcpy(p, copy, count * sizeof(copy[0]));
}

// The operations, of vectors. Integers wrap. Of two numbers, one NaN, the least and the greatest
// are NaN.
struct SumOf {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct ProductOf {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    using T = hn::TFromV<V>;
    if constexpr (hwy::IsFloat<T>() || sizeof(T) < 8) {
      return hn::Mul(a, b);
    } else {  // few machines have an instruction for it
      const hn::DFromV<V> d;
      HWY_ALIGN T left[hn::MaxLanes(d)];
      HWY_ALIGN T right[hn::MaxLanes(d)];
      hn::Store(a, d, left);
      hn::Store(b, d, right);
      for (size_t i = 0; i < hn::Lanes(d); ++i) {
        left[i] = static_cast<T>(static_cast<uint64_t>(left[i]) * static_cast<uint64_t>(right[i]));
      }
      return hn::Load(d, left);
    }
  }
};

struct LeastOf {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct GreatestOf {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
    } else {
      return hn::Max(a, b);
    }
  }
};

// Calls `function` with the operation of a reduction: function(SumOf()). A mean is a sum here.
template <class Function>
void WithOperation(Reduction reduction, const Function& function) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
      return function(SumOf());
    case Reduction::kMin:
      return function(LeastOf());
    case Reduction::kMax:
      return function(GreatestOf());
    case Reduction::kProduct:
      return function(ProductOf());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::collective
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
