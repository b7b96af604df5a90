#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Relu, Gelu, Sigmoid, Tanh, ....
namespace tutti {}  // namespace tutti
