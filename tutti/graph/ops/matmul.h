#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Products of matrices.
namespace tutti {

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// [m, k] x [k, n] -> [m, n].
Output MatMul(Input a, Input b, const MatMulOptions& options = {}, std::string_view name = "");

// [..., m, k] x [..., k, n] -> [..., m, n]; the leading dimensions must be equal.
Output BatchMatMul(Input a, Input b, const MatMulOptions& options = {}, std::string_view name = "");

}  // namespace tutti
