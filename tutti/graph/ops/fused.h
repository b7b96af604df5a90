#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// what the fusion passes make.
namespace tutti {}  // namespace tutti
