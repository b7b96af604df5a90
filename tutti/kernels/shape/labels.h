#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

// What the kernels of classification share: rows of classes, and a checked label for each row.
namespace tutti {

// The last axis against all others. REQUIRES: the shape has a dimension.
struct RowsAndClasses {
  explicit RowsAndClasses(const Shape& shape) : classes(shape.dim(-1)) {
    if (classes > 0) {
      rows = shape.elements() / classes;
    } else {
      // Shape functions have refused results of more rows than fit.
      for (const int64_t dim : shape.dims().first(size_t(shape.rank()) - 1)) {
        rows = int64_t(uint64_t(rows) * uint64_t(dim));
      }
    }
  }
  int64_t rows = 1;
  int64_t classes;
};

inline int64_t LabelAt(const Tensor& labels, int64_t row) {
  return labels.dtype() == kInt32 ? labels.data<int32_t>()[row] : labels.data<int64_t>()[row];
}

// OUT_OF_RANGE naming the label, its row and the classes unless every one lies in [0, classes).
absl::Status CheckLabels(const Tensor& labels, int64_t classes, std::string_view what);

}  // namespace tutti
