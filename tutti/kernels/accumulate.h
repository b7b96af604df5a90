#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/device/device.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// 16-bit floats: sums of them are made in float32 and rounded once. In bfloat16 a sum of ones would
// stop at 256.
template <typename T>
inline constexpr bool kIsNarrow = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// target[i] += source[i]; bools by "or".
template <typename T>
void AddInto(T* target, const T* source, int64_t count) {
  static_assert(!kIsNarrow<T>);
  for (int64_t i = 0; i < count; ++i) target[i] = T(target[i] + source[i]);
}
template <>
inline void AddInto(bool* target, const bool* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = target[i] || source[i];
}

// Calls fill(add), which may call add(start, source, count) any number of times, in any order: it
// adds `count` elements to those of `output` from `start` on, which start at 0. A failure of `fill`
// is the result.
template <typename T, typename Fill>
absl::Status SumSlices(Device& device, Tensor& output, const Fill& fill) {
  const int64_t elements = output.elements();
  if (elements == 0) return fill([](int64_t, const T*, int64_t) {});
  T* const to = output.data<T>();
  if constexpr (kIsNarrow<T>) {
    TUTTI_ASSIGN_OR_RETURN(Tensor wide, device.pool().Allocate(kFloat32, output.shape()));
    auto* const sums = wide.data<float>();
    std::memset(sums, 0, wide.bytes());
    TUTTI_RETURN_IF_ERROR(fill([sums](int64_t start, const T* source, int64_t count) {
      for (int64_t i = 0; i < count; ++i) sums[start + i] += float(source[i]);
    }));
    for (int64_t i = 0; i < elements; ++i) to[i] = T(sums[i]);
    return absl::OkStatus();
  } else {
    std::memset(to, 0, output.bytes());
    return fill([to](int64_t start, const T* source, int64_t count) {
      AddInto(to + start, source, count);
    });
  }
}

}  // namespace tutti
