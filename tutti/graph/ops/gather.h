#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Gather, ScatterNd, OneHot, TopK, Unique, DynamicPartition, ....
namespace tutti {

// A tensor of `shape` (an integer vector), zero but for updates[i...] added at indices[i..., :].
Output ScatterNd(Input indices, Input updates, Input shape, std::string_view name = "");

}  // namespace tutti
