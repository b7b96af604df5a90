#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/placement/step_costs.h"

namespace tutti::placement {

// One value on its way.
struct TransferTime {
  uint32_t from = 0;  // the node that made it
  uint32_t value = 0;
  int source = 0, destination = 0;  // devices
  double start = 0, end = 0;
  double bytes = 0;
};

// How a step would go. Times in seconds from its start.
struct Simulation {
  double seconds = 0;
  std::vector<double> start, end;  // by node
  std::vector<double> busy;        // by device
  std::vector<double> peak_bytes;  // by device: variables, and values that are alive at once
  std::vector<TransferTime> transfers;
};

// Runs a step in simulated time as the executor would: every device does one node at a time, of
// those that are ready the first in the order of the program; a value crosses once to each device
// that wants it, over a link that carries one value after the other. `device` has one for each
// group. The same arguments always give the same result.
Simulation Simulate(const StepCosts& costs, std::span<const int> device);

// The nodes that the end of the step waited for, from the first to the last: each began when the
// one before it, or the transfer of its value, or the node before it on its device, had ended.
std::vector<uint32_t> CriticalPath(const StepCosts& costs, std::span<const int> device,
                                   const Simulation& simulation);

}  // namespace tutti::placement
