#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// BatchNorm, LayerNorm.
namespace tutti {}  // namespace tutti
