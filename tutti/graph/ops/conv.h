#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// BiasAdd, Conv2D, DepthwiseConv2D, Conv2DTranspose.
namespace tutti {}  // namespace tutti
