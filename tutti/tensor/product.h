#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tutti/base/checked.h"

namespace tutti {

// The product of dimensions of which none is unknown: 0 where one is 0, whatever the others are,
// and INT64_MAX where it would pass that. (The other dimensions of an empty tensor may.)
inline int64_t ProductOf(std::span<const int64_t> dims) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t product = 1;
  for (const int64_t dim : dims) {
    const auto next = CheckedMul(product, dim);
    if (!next) return INT64_MAX;
    product = *next;
  }
  return product;
}

}  // namespace tutti
