#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// FIFOQueue, RandomShuffleQueue, Enqueue, Dequeue, ....
namespace tutti {}  // namespace tutti
