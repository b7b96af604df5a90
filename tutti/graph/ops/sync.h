#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Mutex, Barrier, Accumulator, Gate, Clock.
namespace tutti {}  // namespace tutti
