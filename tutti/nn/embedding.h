#pragma once

#include <string_view>

#include "tutti/nn/initializers.h"

namespace tutti::nn {

struct EmbeddingOptions {
  DType dtype = kFloat32;
  // Empty: normal of stddev 1 / sqrt(width).
  InitializerOf table = {};
};

// A vector of `width` numbers for each of `count` symbols: ids [...] -> [..., width]. The ids are
// int32 or int64 in 0..count-1; an id out of range is an error of the run.
// Variable "table" [count, width]; its gradient stays rows, so a step reads and updates only the
// rows that it used.
Output Embedding(Input ids, int64_t count, int64_t width, const EmbeddingOptions& options = {},
                 std::string_view name = "embedding");

}  // namespace tutti::nn
