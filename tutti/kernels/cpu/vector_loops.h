#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

// The attributes of an op that its loops need: alpha, or the bounds of Clip.
struct VectorParams {
  float first = 0;
  float second = 0;
};

// The inner loops of one float32 element-wise op, for the best instructions of this machine. They
// run on the calling thread, read and write exactly n elements, and y may be the same array as an
// input that is read element by element. An op of one value has `unary`; one of two has `both`, and
// where it broadcasts also the loops in which a or b is a single value.
struct VectorLoops {
  using Unary = void (*)(const float* x, float* y, int64_t n, VectorParams params);
  using Binary = void (*)(const float* a, const float* b, float* y, int64_t n, VectorParams params);
  std::string_view op;
  Unary unary = nullptr;
  Binary both = nullptr;
  Binary scalar_a = nullptr;
  Binary scalar_b = nullptr;
  // Elements that are worth a core of their own: fewer where an element costs more.
  int64_t grain = 16384;
};

// Null when there is none. Names are those of the ops; of Gelu and GeluGrad the approximate forms
// are "GeluTanh" and "GeluTanhGrad".
const VectorLoops* FindVectorLoops(std::string_view op);

// The parts of the table, for FindVectorLoops.
std::span<const VectorLoops> ArithmeticLoops();  // vector_arithmetic.cc
std::span<const VectorLoops> FunctionLoops();    // vector_functions.cc
std::span<const VectorLoops> ActivationLoops();  // vector_activations.cc

}  // namespace tutti
