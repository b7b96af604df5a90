#pragma once

#include <type_traits>

#include "tutti/tensor/float16.h"

namespace tutti {

// An attribute's number as an element. REQUIRES: T can hold it; shape functions have seen to that.
template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(float(value));
  } else {
    return T(value);
  }
}

}  // namespace tutti
