#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// MatrixInverse, MatrixDeterminant, Cholesky, MatrixSolve.
namespace tutti {}  // namespace tutti
