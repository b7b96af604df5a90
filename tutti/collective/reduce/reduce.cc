// One loop carries every reduction: a block of some vectors is loaded from each source and added up
// in registers, then stored into each target. All loads of a block stand before its stores, so
// targets may be sources, and the loads of all streams are in flight at once. Every element meets
// the same operations in the same order wherever it lies, so the result does not depend on how a
// range is cut into calls.
//
// What pays, measured with float32 on 2 cores of an AMD EPYC (AVX2; n arrays that are source and
// target at once, as in an all-reduce; GB/s of all loads and stores):
//   blocks of 4 vectors, n known to the compiler   n = 2, in the L2 cache: 345; 16 MB: 136
//   the same, n looked up in every block           n = 2, in the L2 cache: 285; 64 MB: no slower
//   blocks of 8 vectors                            in the L2 cache a quarter slower, 64 MB the same
//   stores past the caches                         half the speed: the lines were just loaded
//   software prefetch 512 to 2,048 bytes ahead     never faster, up to a fifth slower
// A plain loop of one compiler with aligned arrays reaches the same; this one does with n > 2 too.
#include "tutti/collective/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/collective/reduce/reduce.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tutti/collective/reduce/element_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::collective {
namespace HWY_NAMESPACE {
namespace {

// What the sum is multiplied with, or, of integers, divided by.
struct Factor {
  double scale;
  int64_t divisor;
};

template <class V>
HWY_INLINE V Scaled(V v, Factor factor) {
  using T = hn::TFromV<V>;
  const hn::DFromV<V> d;
  if constexpr (hwy::IsFloat<T>()) {
    return hn::Mul(v, hn::Set(d, static_cast<T>(factor.scale)));
  } else {
    if (factor.divisor == 1) return v;
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      lanes[i] = static_cast<T>(int64_t{lanes[i]} / factor.divisor);
    }
    return hn::Load(d, lanes);
  }
}

struct Arrays {
  const void* const* sources;
  int n_sources;
  void* const* targets;
  int n_targets;
};

// kSources and kTargets: how many there are, or 0 for as many as `arrays` says.
template <class Element, class Op, int kSources, int kTargets>
void ReduceLoop(const Arrays& arrays, int64_t count, Factor factor) {
  using Stored = typename Element::Stored;
  using V = VectorOf<Element>;
  const int n_sources = kSources > 0 ? kSources : arrays.n_sources;
  const int n_targets = kTargets > 0 ? kTargets : arrays.n_targets;
  // Copies of a known number live in registers.
  const Stored* near_sources[kSources > 0 ? kSources : 1];
  Stored* near_targets[kTargets > 0 ? kTargets : 1];
  for (int s = 0; s < kSources; ++s)
    near_sources[s] = static_cast<const Stored*>(arrays.sources[s]);
  for (int t = 0; t < kTargets; ++t) near_targets[t] = static_cast<Stored*>(arrays.targets[t]);
  const auto* const sources =
      kSources > 0 ? near_sources : reinterpret_cast<const Stored* const*>(arrays.sources);
  const auto* const targets =
      kTargets > 0 ? near_targets : reinterpret_cast<Stored* const*>(arrays.targets);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(LanesOf<Element>()));

  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const Stored* p = sources[0] + i;
    V v0 = Element::Load(p);
    V v1 = Element::Load(p + lanes);
    V v2 = Element::Load(p + 2 * lanes);
    V v3 = Element::Load(p + 3 * lanes);
    for (int s = 1; s < n_sources; ++s) {
      p = sources[s] + i;
      v0 = Op::Apply(v0, Element::Load(p));
      v1 = Op::Apply(v1, Element::Load(p + lanes));
      v2 = Op::Apply(v2, Element::Load(p + 2 * lanes));
      v3 = Op::Apply(v3, Element::Load(p + 3 * lanes));
    }
    v0 = Scaled(v0, factor);
    v1 = Scaled(v1, factor);
    v2 = Scaled(v2, factor);
    v3 = Scaled(v3, factor);
    for (int t = 0; t < n_targets; ++t) {
      Stored* const q = targets[t] + i;
      Element::Store(v0, q);
      Element::Store(v1, q + lanes);
      Element::Store(v2, q + 2 * lanes);
      Element::Store(v3, q + 3 * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    V v = Element::Load(sources[0] + i);
    for (int s = 1; s < n_sources; ++s) v = Op::Apply(v, Element::Load(sources[s] + i));
    v = Scaled(v, factor);
    for (int t = 0; t < n_targets; ++t) Element::Store(v, targets[t] + i);
  }
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i);
  V v = LoadFirst<Element>(sources[0] + i, rest);
  for (int s = 1; s < n_sources; ++s) {
    v = Op::Apply(v, LoadFirst<Element>(sources[s] + i, rest));
  }
  v = Scaled(v, factor);
  for (int t = 0; t < n_targets; ++t) StoreFirst<Element>(v, targets[t] + i, rest);
}

// Sums of few arrays, which is what training does, have loops of their own.
template <class Element, class Op>
void ReduceWith(const Arrays& arrays, int64_t count, Factor factor) {
  if constexpr (std::is_same_v<Op, SumOf>) {
    if (arrays.n_sources == 2 && arrays.n_targets == 1) {
      return ReduceLoop<Element, Op, 2, 1>(arrays, count, factor);
    }
    if (arrays.n_sources == 2 && arrays.n_targets == 2) {
      return ReduceLoop<Element, Op, 2, 2>(arrays, count, factor);
    }
    if (arrays.n_sources == 4 && arrays.n_targets == 4) {
      return ReduceLoop<Element, Op, 4, 4>(arrays, count, factor);
    }
  }
  ReduceLoop<Element, Op, 0, 0>(arrays, count, factor);
}

template <class Element>
void ReduceElements(Reduction reduction, const Arrays& arrays, int64_t count, Factor factor) {
  WithOperation(reduction, [&](auto operation) {
    ReduceWith<Element, decltype(operation)>(arrays, count, factor);
  });
}

void Reduce(Reduction reduction, DType dtype, const void* const* sources, int n_sources,
            void* const* targets, int n_targets, int64_t count, double scale) {
  const Arrays arrays{sources, n_sources, targets, n_targets};
  // Past the largest divisor that matters, every quotient is 0.
  const double divisor = std::clamp(std::round(1 / scale), 1.0, 0x1p62);
  const Factor factor{scale, static_cast<int64_t>(divisor)};
  switch (dtype) {
    case kFloat16:
      return ReduceElements<Float16Element>(reduction, arrays, count, factor);
    case kBFloat16:
      return ReduceElements<BFloat16Element>(reduction, arrays, count, factor);
    case kFloat32:
      return ReduceElements<Plain<float>>(reduction, arrays, count, factor);
    case kFloat64:
      return ReduceElements<Plain<double>>(reduction, arrays, count, factor);
    case kInt32:
      return ReduceElements<Plain<int32_t>>(reduction, arrays, count, factor);
    case kInt64:
      return ReduceElements<Plain<int64_t>>(reduction, arrays, count, factor);
    default:
      return;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti::collective
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::collective {
namespace {
HWY_EXPORT(Reduce);
}  // namespace

bool CanReduce(DType dtype) {
  switch (dtype) {
    case kFloat16:
    case kBFloat16:
    case kFloat32:
    case kFloat64:
    case kInt32:
    case kInt64:
      return true;
    default:
      return false;
  }
}

void ReduceInto(Reduction reduction, DType dtype, void* target, const void* source, int64_t count) {
  const void* const sources[] = {target, source};
  HWY_DYNAMIC_DISPATCH(Reduce)(reduction, dtype, sources, 2, &target, 1, count, 1);
}

void ReduceToAll(Reduction reduction, DType dtype, const void* const* sources, int n_sources,
                 void* const* targets, int n_targets, int64_t count, double scale) {
  HWY_DYNAMIC_DISPATCH(Reduce)
  (reduction, dtype, sources, n_sources, targets, n_targets, count, scale);
}

void Scale(DType dtype, void* data, int64_t count, double scale) {
  const void* const source = data;
  HWY_DYNAMIC_DISPATCH(Reduce)(Reduction::kSum, dtype, &source, 1, &data, 1, count, scale);
}

}  // namespace tutti::collective
#endif  // HWY_ONCE
