#pragma once

#include <vector>

#include "tutti/train/strategies/registry.h"

namespace tutti {

// The strategies of this folder.
std::vector<StrategyDef> BuiltInStrategies();

}  // namespace tutti
