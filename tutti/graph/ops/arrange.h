#pragma once

#include <span>
#include <string_view>

#include "tutti/graph/input.h"

// Transpose, Concat, Split, Slice, Pad, Tile, ....
namespace tutti {

// Joins values along `axis`; their other dimensions are equal.
Output Concat(std::span<const Output> values, int axis, std::string_view name = "");

}  // namespace tutti
