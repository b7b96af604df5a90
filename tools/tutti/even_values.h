#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/tensor/tensor.h"

// Values by a formula on whole numbers that benchmarks/peers/models.py computes too, so that Tutti
// and its peers start from the same numbers and must show the same first losses.
namespace tutti::tools {

// Stream of a model's first data; those of what follows (labels) are the next ones. Weights have
// streams from 1 on, in the order of their layers.
inline constexpr uint32_t kDataStream = 1000;

// Number `i` of a stream; all values are equally likely. The finalizer of MurmurHash3, of a Weyl
// sequence.
inline uint32_t MixedNumber(uint32_t stream, uint32_t i) {
  uint32_t h = i + stream * 0x9E3779B9u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

// Even in [-limit, limit): the element i from MixedNumber(stream, i).
inline Tensor EvenValues(const Shape& shape, uint32_t stream, float limit) {
  Tensor values(kFloat32, shape);
  uint32_t i = 0;
  for (float& value : values.values<float>()) {
    // 24 bits: the fraction is a float without rounding.
    const float fraction = float(MixedNumber(stream, i++) >> 8) * 0x1p-24f;
    value = (2 * fraction - 1) * limit;
  }
  return values;
}

// Numbers of mean 0 and variance 1.
inline Tensor EvenData(const Shape& shape, uint32_t stream) {
  return EvenValues(shape, stream, std::sqrt(3.0f));
}

// Weights within the limit of GlorotUniform. REQUIRES: shape.rank() >= 2.
inline Tensor EvenWeights(const Shape& shape, uint32_t stream) {
  const int rank = shape.rank();
  double connections = double(shape[rank - 2] + shape[rank - 1]);
  for (int i = 0; i < rank - 2; ++i) connections *= double(shape[i]);
  return EvenValues(shape, stream, float(std::sqrt(6 / connections)));
}

// From MixedNumber(stream, i) % classes.
inline Tensor MixedLabels(int64_t size, uint32_t stream, uint32_t classes) {
  Tensor labels(kInt32, {size});
  uint32_t i = 0;
  for (int32_t& label : labels.values<int32_t>()) {
    label = int32_t(MixedNumber(stream, i++) % classes);
  }
  return labels;
}

}  // namespace tutti::tools
