#pragma once

#include <cstddef>

namespace tutti {

// The most bytes of one tensor, and of the planned memory of one step: 64 TiB, more than any
// machine has, and so little that sums and roundings of such sizes do not overflow.
inline constexpr size_t kMostBytes = size_t{1} << 46;

}  // namespace tutti
