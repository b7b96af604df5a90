#include "tutti/device/layout.h"

#include <cctype>

#include "tutti/base/checked.h"

namespace tutti {

size_t Layout::Bytes(DType dtype, const Shape& shape) const {
  Shape padded = shape;
  // The tag's tail is block sizes with the letter of their dimension: "8b", "8i8o". A dimension may
  // be blocked twice; the product of its blocks counts.
  int64_t block_of[kMaxRank];
  for (int64_t& block : block_of) block = 1;
  int64_t number = 0;
  for (const char c : tag_) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      number = number * 10 + (c - '0');
    } else if (number > 0) {
      const int dim = std::tolower(static_cast<unsigned char>(c)) - 'a';
      if (dim >= 0 && dim < shape.rank()) block_of[dim] *= number;
      number = 0;
    }
  }
  for (int i = 0; i < shape.rank(); ++i)
    padded = padded.WithDim(i, RoundUp(shape.dim(i), block_of[i]));
  return size_t(padded.elements()) * SizeOf(dtype);
}

}  // namespace tutti
