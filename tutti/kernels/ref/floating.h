#pragma once

#include <type_traits>

#include "tutti/tensor/dtype.h"

// How references of floating-point ops compute: in double, whatever the type in memory.
namespace tutti {

template <typename T>
double Read(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return double(value);
  } else {
    return double(float(value));
  }
}
template <typename T>
T Write(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return T(value);
  } else {
    return T(float(value));
  }
}

// Calls body(tag) with the type of a floating-point dtype.
template <typename Body>
void VisitFloating(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat16:
      return body(std::type_identity<Float16>{});
    case DType::kBFloat16:
      return body(std::type_identity<BFloat16>{});
    case DType::kFloat64:
      return body(std::type_identity<double>{});
    default:
      return body(std::type_identity<float>{});
  }
}

}  // namespace tutti
