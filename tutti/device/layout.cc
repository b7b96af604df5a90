#include "tutti/device/layout.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "tutti/device/memory_limit.h"

namespace tutti {
namespace {

// a * b, or SIZE_MAX beyond kMostBytes. REQUIRES: neither is 0.
size_t Product(size_t a, size_t b) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > kMostBytes) return SIZE_MAX;
  return product;
}

}  // namespace

size_t Layout::Bytes(DType dtype, const Shape& shape) const {
  // The tag's tail is block sizes with the letter of their dimension: "8b", "8i8o". A dimension may
  // be blocked twice; the product of its blocks counts.
  size_t block_of[kMaxRank];
  std::fill_n(block_of, kMaxRank, size_t{1});
  size_t number = 0;
  for (const char c : tag_) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      number = std::min(number * 10 + size_t(c - '0'), kMostBytes);
    } else if (number > 0) {
      const int dim = std::tolower(static_cast<unsigned char>(c)) - 'a';
      if (dim >= 0 && dim < shape.rank()) block_of[dim] = Product(block_of[dim], number);
      number = 0;
    }
  }
  if (shape.elements() == 0) return 0;
  size_t bytes = SizeOf(dtype);
  for (int i = 0; i < shape.rank(); ++i) {
    const auto dim = size_t(shape.dim(i));
    const size_t blocks = dim / block_of[i] + (dim % block_of[i] != 0 ? 1 : 0);
    bytes = Product(bytes, Product(blocks, block_of[i]));
  }
  return bytes;
}

}  // namespace tutti
