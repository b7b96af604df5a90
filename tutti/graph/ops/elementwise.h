#pragma once

#include <span>
#include <string_view>

#include "tutti/graph/input.h"

// arithmetic, comparison and logic by element; Select, Cast, Clip.
namespace tutti {

// The sum of one or more values of one shape.
Output AddN(std::span<const Output> values, std::string_view name = "");

}  // namespace tutti
