#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// ApplyGradientDescent, ApplyAdam, ....
namespace tutti {}  // namespace tutti
