#pragma once

#include "tutti/graph/op_def.h"

namespace tutti {

// For ops that change rows of a variable: input `rows` must have the shape of input `indices`
// followed by the variable's without its first dimension. Lies in state.cc.
absl::Status CheckRowsInput(const InferContext& context, int variable, int indices, int rows);

}  // namespace tutti
