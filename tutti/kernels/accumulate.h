#pragma once

#include <cstdint>

#include "tutti/tensor/float16.h"

namespace tutti {

// target[i] += source[i]. 16-bit floats are added in float; bools by "or".
template <typename T>
void AddInto(T* target, const T* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = T(target[i] + source[i]);
}
template <>
inline void AddInto(Float16* target, const Float16* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = Float16(float(target[i]) + float(source[i]));
}
template <>
inline void AddInto(BFloat16* target, const BFloat16* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = BFloat16(float(target[i]) + float(source[i]));
}
template <>
inline void AddInto(bool* target, const bool* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = target[i] || source[i];
}

}  // namespace tutti
