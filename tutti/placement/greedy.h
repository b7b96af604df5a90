#pragma once

#include "tutti/placement/placer.h"

namespace tutti::placement {

// In which order nodes choose.
enum class GreedyOrder {
  kProgram,     // as the program has them
  kHeavyFirst,  // by the time from the node to the end of the step, the longest first
};

// Each node goes to the allowed device on which it would end first, transfers counted, given what
// was placed before it. The simulation of the result is not filled in.
Plan PlaceGreedily(const StepCosts& costs, GreedyOrder order, bool keep_finish);

}  // namespace tutti::placement
