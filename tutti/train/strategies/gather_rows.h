#pragma once

#include <string>
#include <vector>

#include "tutti/train/optimizers/gradient_list.h"

namespace tutti {

// Replaces each gradient of `list` that is rows by the sum of all workers' rows: see
// gather_rows.cc. Every row number is there once, in ascending order, and all workers have the same
// bits. One AllGather, whatever the tables. `wire`: as-is, bfloat16 or float16, how float32 rows
// travel.
void GatherRows(const std::string& wire, std::vector<GradientAndVariable>& list);

}  // namespace tutti
