#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tutti/tensor/dtype.h"

// Element types as the reference kernels compute with them.
namespace tutti::ref {

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// What T is computed in: float for the 16-bit types, else T itself.
template <typename T>
using Compute = std::conditional_t<kIs16Bit<T>, float, T>;

template <typename T>
inline constexpr bool kIsFloating = kIs16Bit<T> || std::is_floating_point_v<T>;
template <typename T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !kIsBool<T>;

// Integer arithmetic wraps around: it is done in uint64_t, where that is defined for every type.
template <typename T>
T Wrap(uint64_t value) {
  return static_cast<T>(value);
}
template <typename T>
uint64_t Bits(T value) {
  return static_cast<uint64_t>(value);
}

// The conversion that Cast promises, defined for every value.
template <typename To, typename From>
To ConvertTo(From from) {
  if constexpr (kIs16Bit<From>) {
    return ConvertTo<To>(static_cast<float>(from));
  } else if constexpr (kIs16Bit<To>) {
    return To(static_cast<float>(from));
  } else if constexpr (kIsBool<To>) {
    return from != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // The bounds as From: lowest() is exact, and max() + 1 is a power of two, exact as well.
    constexpr From below = static_cast<From>(std::numeric_limits<To>::lowest());
    const From beyond = std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (from != from) return 0;
    if (from < below) return std::numeric_limits<To>::lowest();
    if (from >= beyond) return std::numeric_limits<To>::max();
    return static_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace tutti::ref
