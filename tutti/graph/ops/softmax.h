#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Softmax, LogSoftmax, the cross-entropies, L2Loss, InTopK.
namespace tutti {}  // namespace tutti
