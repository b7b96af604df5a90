#pragma once

#include <string_view>

#include "tutti/graph/input.h"

namespace tutti::nn {

// [batch, a, b, ...] -> [batch, a * b * ...]; a vector becomes [batch, 1].
Output Flatten(Input x, std::string_view name = "");

}  // namespace tutti::nn
