#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Sum, Mean, Max, ArgMax, Cumsum, LogSumExp, ....
namespace tutti {}  // namespace tutti
