#pragma once

#include "tutti/placement/placer.h"

namespace tutti::placement {

// How much a plan is above the memory of its devices, in bytes over all of them.
double Overflow(const StepCosts& costs, const Simulation& simulation);

// Moves clusters of groups from device to device as long as the simulated step gets shorter (or
// less is above the limits of memory), within the bounds of the options. `plan` has a simulation.
void Improve(const StepCosts& costs, const PlanOptions& options, Plan& plan);

}  // namespace tutti::placement
