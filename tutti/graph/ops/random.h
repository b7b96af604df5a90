#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// RandomUniform, RandomNormal, TruncatedNormal, Shuffle, Dropout.
namespace tutti {}  // namespace tutti
