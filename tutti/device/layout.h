#pragma once

#include <string>

#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"

namespace tutti {

// How the elements of a tensor lie in memory. Empty: dense and row-major, as everywhere outside a
// plan. Else a blocked layout in oneDNN's letters over the tensor's own dimensions: "aBcd8b" has
// dimension b split by 8. A plain value.
class Layout {
 public:
  Layout() = default;
  explicit Layout(std::string tag) : tag_(std::move(tag)) {}
  bool row_major() const { return tag_.empty(); }
  const std::string& tag() const { return tag_; }

  // Bytes of a tensor in this layout, blocked dimensions padded; SIZE_MAX beyond kMostBytes.
  size_t Bytes(DType dtype, const Shape& shape) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::string tag_;
};

}  // namespace tutti
