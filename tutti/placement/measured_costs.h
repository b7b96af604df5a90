#pragma once

#include <span>
#include <string>
#include <unordered_map>

#include "tutti/placement/step_costs.h"

namespace tutti::placement {

// How long nodes took, by name; what is not there was computed by another node and takes no time of
// its own.
using MeasuredSeconds = std::unordered_map<std::string, double>;

// Replaces the estimated times of `costs` by measured ones. `ran_on` has the device on which each
// group was measured; empty: on one core of speed 1, while the others rested.
void UseMeasured(const MeasuredSeconds& measured, std::span<const int> ran_on, StepCosts& costs);

}  // namespace tutti::placement
