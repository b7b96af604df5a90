#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

// Integer tensors that say where: indices, shapes, axes.
namespace tutti {

// Element i of an int32 or int64 tensor.
inline int64_t IndexAt(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == kInt32 ? tensor.data<int32_t>()[i] : tensor.data<int64_t>()[i];
}

// An integer vector read as dimensions. An error, naming it `name`, when one of them is negative or
// their product is too large.
absl::StatusOr<Shape> ShapeValue(const Tensor& dims, std::string_view name);

// OUT_OF_RANGE: `indices[2, 0] is 12; expected 0 to 9`, for the element at position `flat`.
absl::Status BadIndex(const Tensor& indices, int64_t flat, int64_t limit, std::string_view name);

// The first element of `indices` that is not in 0..limit-1, as an error.
absl::Status CheckIndices(const Tensor& indices, int64_t limit, std::string_view name);

}  // namespace tutti
