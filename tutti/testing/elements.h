// Elements of tensors of any dtype as double, for tests.
#pragma once

#include <type_traits>

#include "tutti/tensor/tensor.h"

namespace tutti::testing {

inline double ElementOf(const Tensor& tensor, int64_t i) {
  return VisitDType(tensor.dtype(), [&](auto tag) -> double {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      return double(float(tensor.data<T>()[i]));
    } else {
      return double(tensor.data<T>()[i]);
    }
  });
}

inline void SetElement(Tensor& tensor, int64_t i, double value) {
  VisitDType(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      tensor.data<T>()[i] = T(float(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      tensor.data<T>()[i] = value >= 0.5;
    } else {
      tensor.data<T>()[i] = static_cast<T>(value);
    }
  });
}

// The same values, rounded to `dtype`.
inline Tensor Rounded(const Tensor& tensor, DType dtype) {
  Tensor result(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) SetElement(result, i, ElementOf(tensor, i));
  return result;
}

}  // namespace tutti::testing
