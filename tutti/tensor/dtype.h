#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tutti/tensor/float16.h"

namespace tutti {

// The element types of tensors. The numbers stand in files and on the wire and never change.
enum class DType : uint8_t {
  kInvalid = 0,
  kFloat16 = 1,
  kFloat32 = 2,
  kFloat64 = 3,
  kBFloat16 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kUInt8 = 9,
  kUInt16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
  kBool = 13,
};

inline constexpr DType kFloat16 = DType::kFloat16;
inline constexpr DType kFloat32 = DType::kFloat32;
inline constexpr DType kFloat64 = DType::kFloat64;
inline constexpr DType kBFloat16 = DType::kBFloat16;
inline constexpr DType kInt8 = DType::kInt8;
inline constexpr DType kInt16 = DType::kInt16;
inline constexpr DType kInt32 = DType::kInt32;
inline constexpr DType kInt64 = DType::kInt64;
inline constexpr DType kUInt8 = DType::kUInt8;
inline constexpr DType kUInt16 = DType::kUInt16;
inline constexpr DType kUInt32 = DType::kUInt32;
inline constexpr DType kUInt64 = DType::kUInt64;
inline constexpr DType kBool = DType::kBool;

inline constexpr DType kAllDTypes[] = {kFloat16, kFloat32, kFloat64, kBFloat16, kInt8,
                                       kInt16,   kInt32,   kInt64,   kUInt8,    kUInt16,
                                       kUInt32,  kUInt64,  kBool};

size_t SizeOf(DType dtype);            // bytes of one element; 0 for kInvalid
std::string_view NameOf(DType dtype);  // "float32"
std::optional<DType> DTypeFromName(std::string_view name);
bool IsFloating(DType dtype);  // float16, bfloat16, float32, float64
bool IsInteger(DType dtype);   // signed or unsigned; not bool
bool IsSigned(DType dtype);    // floating or signed integer

// kFloat32 for float, and so on.
template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, Float16>) return kFloat16;
  if constexpr (std::is_same_v<T, float>) return kFloat32;
  if constexpr (std::is_same_v<T, double>) return kFloat64;
  if constexpr (std::is_same_v<T, BFloat16>) return kBFloat16;
  if constexpr (std::is_same_v<T, bool>) return kBool;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? kInt8 : kUInt8;
    if constexpr (sizeof(T) == 2) return is_signed ? kInt16 : kUInt16;
    if constexpr (sizeof(T) == 4) return is_signed ? kInt32 : kUInt32;
    if constexpr (sizeof(T) == 8) return is_signed ? kInt64 : kUInt64;
  }
  return DType::kInvalid;
}

// Calls visitor(std::type_identity<T>{}) with the C++ type of `dtype` and returns its result.
// REQUIRES: dtype is valid. Usage: VisitDType(d, [&](auto tag) { using T = typename
// decltype(tag)::type; ... });
template <typename Visitor>
decltype(auto) VisitDType(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat16:
      return visitor(std::type_identity<Float16>{});
    case DType::kFloat64:
      return visitor(std::type_identity<double>{});
    case DType::kBFloat16:
      return visitor(std::type_identity<BFloat16>{});
    case DType::kInt8:
      return visitor(std::type_identity<int8_t>{});
    case DType::kInt16:
      return visitor(std::type_identity<int16_t>{});
    case DType::kInt32:
      return visitor(std::type_identity<int32_t>{});
    case DType::kInt64:
      return visitor(std::type_identity<int64_t>{});
    case DType::kUInt8:
      return visitor(std::type_identity<uint8_t>{});
    case DType::kUInt16:
      return visitor(std::type_identity<uint16_t>{});
    case DType::kUInt32:
      return visitor(std::type_identity<uint32_t>{});
    case DType::kUInt64:
      return visitor(std::type_identity<uint64_t>{});
    case DType::kBool:
      return visitor(std::type_identity<bool>{});
    case DType::kFloat32:
    case DType::kInvalid:
      break;
  }
  return visitor(std::type_identity<float>{});
}

}  // namespace tutti
