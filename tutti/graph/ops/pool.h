#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// MaxPool, AvgPool, GlobalAvgPool.
namespace tutti {}  // namespace tutti
