#pragma once

#include <string_view>

#include "tutti/base/status.h"
#include "tutti/tensor/product.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements of one row: of a tensor without its first dimension. REQUIRES: rank at least 1.
inline int64_t RowWidth(const Shape& shape) { return ProductOf(shape.dims().subspan(1)); }

// The row numbers in an int32 or int64 tensor. Refers to the tensor; a plain value otherwise.
class RowIndices {
 public:
  explicit RowIndices(const Tensor& indices)
      : indices_(indices), wide_(indices.dtype() == kInt64), size_(indices.elements()) {}

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const {
    return wide_ ? indices_.data<int64_t>()[i] : int64_t{indices_.data<int32_t>()[i]};
  }

  // OUT_OF_RANGE, naming the first bad index and its position, unless all are rows of `shape`.
  // The message names what has that shape: kind "variable" and its name.
  absl::Status CheckRange(const Shape& shape, std::string_view kind, std::string_view name) const {
    if (shape.rank() < 1) {
      return InvalidArgument("{} \"{}\" is a scalar and has no rows", kind, name);
    }
    const int64_t rows = shape.dim(0);
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t index = (*this)[i];
      if (index < 0 || index >= rows) {
        return OutOfRange("indices[{}] is {}; {} \"{}\" is {} and has rows 0 to {}", i, index, kind,
                          name, shape.ToString(), rows - 1);
      }
    }
    return absl::OkStatus();
  }

  // INVALID_ARGUMENT unless `rows` holds one row of `shape` for each index.
  absl::Status CheckRows(const Shape& shape, const Shape& rows) const {
    // An empty variable may have rows of any width, but none of them is named.
    if (rows.elements() == (size_ == 0 ? 0 : size_ * RowWidth(shape))) return absl::OkStatus();
    return InvalidArgument("rows is {}; expected {} rows of the variable, which is {}",
                           rows.ToString(), size_, shape.ToString());
  }

 private:
  const Tensor& indices_;
  bool wide_;
  int64_t size_;
};

}  // namespace tutti
