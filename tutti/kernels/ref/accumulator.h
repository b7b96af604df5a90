#pragma once

#include <cstdint>
#include <type_traits>

#include "tutti/tensor/float16.h"

// In which type reference kernels sum products: wide enough that the oracle's own rounding does not
// matter, and wrapping without undefined behaviour for integers.
namespace tutti {

template <typename T>
struct AccumulatorOf {
  using type = uint64_t;  // integers: modulo 2^64, cut to the width of T at the end
};
template <>
struct AccumulatorOf<float> {
  using type = double;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <>
struct AccumulatorOf<Float16> {
  using type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using type = float;
};

template <typename T>
using Accumulator = typename AccumulatorOf<T>::type;

}  // namespace tutti
