#pragma once

#include <string_view>

#include "tutti/nn/initializers.h"

namespace tutti::nn {

struct EmbeddingOptions {
  DType dtype = kFloat32;
  // Empty: normal of stddev 1 / sqrt(width).
  InitializerOf table = {};
};

// A vector of `width` numbers for each of `count` symbols: ids [...] (int32 or int64, 0..count-1)
// ->
// [..., width]. Variable "table" [count, width]; its gradient stays rows, so a step reads and
// updates only the rows that it used. An id out of range is an error of the run.
Output Embedding(Input ids, int64_t count, int64_t width, const EmbeddingOptions& options = {},
                 std::string_view name = "embedding");

}  // namespace tutti::nn
