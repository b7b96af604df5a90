#pragma once

#include <cstdint>
#include <optional>

// Arithmetic on sizes that come from outside: an overflow is an answer, never a wrapped number.
namespace tutti {

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline int64_t DivideRoundUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t RoundUp(int64_t a, int64_t multiple) {
  return DivideRoundUp(a, multiple) * multiple;
}

}  // namespace tutti
