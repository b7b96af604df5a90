// float32 data on its way between ranks: packed into 16 bits and back. Loops over vectors as in
// reduce.cc; the sum with what arrives is made in float32.
#include <cstring>

#include "tutti/collective/reduce/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/collective/engine/wire_format.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tutti/collective/reduce/element_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::collective {
namespace HWY_NAMESPACE {
namespace {

template <class From, class To>
void ConvertLoop(const typename From::Stored* source, typename To::Stored* target, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(LanesOf<From>()));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = From::Load(source + i);
    const auto second = From::Load(source + i + lanes);
    To::Store(first, target + i);
    To::Store(second, target + i + lanes);
  }
  for (; i + lanes <= count; i += lanes) To::Store(From::Load(source + i), target + i);
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i);
  StoreFirst<To>(LoadFirst<From>(source + i, rest), target + i, rest);
}

template <class From, class Op>
void ConvertReduceLoop(const typename From::Stored* source, float* target, int64_t count) {
  using To = Plain<float>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(LanesOf<From>()));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = Op::Apply(To::Load(target + i), From::Load(source + i));
    const auto second = Op::Apply(To::Load(target + i + lanes), From::Load(source + i + lanes));
    To::Store(first, target + i);
    To::Store(second, target + i + lanes);
  }
  for (; i + lanes <= count; i += lanes) {
    To::Store(Op::Apply(To::Load(target + i), From::Load(source + i)), target + i);
  }
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i);
  const auto sum = Op::Apply(LoadFirst<To>(target + i, rest), LoadFirst<From>(source + i, rest));
  StoreFirst<To>(sum, target + i, rest);
}

void Pack16(Wire wire, const float* source, uint16_t* packed, int64_t count) {
  if (wire == Wire::kBFloat16) {
    ConvertLoop<Plain<float>, BFloat16Element>(source, packed, count);
  } else {
    ConvertLoop<Plain<float>, Float16Element>(source, packed, count);
  }
}

void Unpack16(Wire wire, const uint16_t* packed, float* target, int64_t count) {
  if (wire == Wire::kBFloat16) {
    ConvertLoop<BFloat16Element, Plain<float>>(packed, target, count);
  } else {
    ConvertLoop<Float16Element, Plain<float>>(packed, target, count);
  }
}

void UnpackReduce16(Reduction reduction, Wire wire, const uint16_t* packed, float* target,
                    int64_t count) {
  WithOperation(reduction, [&](auto operation) {
    using Op = decltype(operation);
    if (wire == Wire::kBFloat16) {
      ConvertReduceLoop<BFloat16Element, Op>(packed, target, count);
    } else {
      ConvertReduceLoop<Float16Element, Op>(packed, target, count);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti::collective
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::collective {
namespace {
HWY_EXPORT(Pack16);
HWY_EXPORT(Unpack16);
HWY_EXPORT(UnpackReduce16);

void CopyFloats(void* to, const void* from, int64_t count) {
  if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}
}  // namespace

void Pack(Wire wire, const float* source, void* packed, int64_t count) {
  if (wire == Wire::kAsIs) return CopyFloats(packed, source, count);
  HWY_DYNAMIC_DISPATCH(Pack16)(wire, source, static_cast<uint16_t*>(packed), count);
}

void Unpack(Wire wire, const void* packed, float* target, int64_t count) {
  if (wire == Wire::kAsIs) return CopyFloats(target, packed, count);
  HWY_DYNAMIC_DISPATCH(Unpack16)(wire, static_cast<const uint16_t*>(packed), target, count);
}

void UnpackReduce(Reduction reduction, Wire wire, const void* packed, float* target,
                  int64_t count) {
  if (wire == Wire::kAsIs) return ReduceInto(reduction, kFloat32, target, packed, count);
  HWY_DYNAMIC_DISPATCH(UnpackReduce16)
  (reduction, wire, static_cast<const uint16_t*>(packed), target, count);
}

}  // namespace tutti::collective
#endif  // HWY_ONCE
