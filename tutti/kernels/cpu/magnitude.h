#pragma once

#include <cstdint>

#include "tutti/base/team.h"

namespace tutti {

// The largest |x[i]| of n floats, 0 for none, infinity where one is infinite or NaN. One pass at
// the speed of memory.
float LargestMagnitude(const Team& team, const float* x, int64_t n);

}  // namespace tutti
