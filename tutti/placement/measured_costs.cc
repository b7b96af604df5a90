// A measured time is that of one placement: of a device with so many cores, while other devices of
// its host were at work or not. Another placement needs what the node would take on one core with
// the host to itself, and how that changes with cores and with neighbours. Both come from the
// estimates: the placement that was measured is simulated with them, and
//
//   alone = measured * estimate on one core alone / simulated time in that placement
//
// The estimates' proportions are kept, so that a node that was measured beside others is not slowed
// down twice, and one that was measured alone is slowed down when it gets neighbours. Nodes that
// the passes compute together are measured under one name, so they share their proportions.
#include "tutti/placement/measured_costs.h"

#include <vector>

#include "tutti/placement/simulate.h"

namespace tutti::placement {
namespace {

// Of nodes that are computed together.
struct Estimate {
  double seconds = 0;
  double core_seconds = 0;
  double crowded = 0;    // seconds with all cores at work
  double simulated = 0;  // in the placement that was measured
};

}  // namespace

void UseMeasured(const MeasuredSeconds& measured, std::span<const int> ran_on, StepCosts& costs) {
  Simulation simulation;
  if (!ran_on.empty()) simulation = Simulate(costs, ran_on);
  std::vector<size_t> first(costs.size());  // by node: the first that it is computed with
  std::vector<Estimate> estimates(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    const int joined = costs.joined[i];
    first[i] = joined < 0 ? i : first[size_t(costs.NodeOf(i).input(joined).node->id())];
    Estimate& sum = estimates[first[i]];
    sum.seconds += costs.seconds[i];
    sum.core_seconds += costs.core_seconds[i];
    sum.crowded += costs.seconds[i] * costs.crowding[i];
    sum.simulated += ran_on.empty() ? costs.seconds[i] : simulation.end[i] - simulation.start[i];
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto it = measured.find(costs.NodeOf(i).name());
    const Estimate& sum = estimates[first[i]];
    const bool proportions = sum.seconds > 0 && sum.simulated > 0;
    costs.seconds[i] = it == measured.end() ? 0 : it->second;
    if (proportions) costs.seconds[i] *= sum.seconds / sum.simulated;
    costs.core_seconds[i] = proportions ? costs.seconds[i] * sum.core_seconds / sum.seconds : 0;
    costs.crowding[i] = proportions ? sum.crowded / sum.seconds : 1;
  }
}

}  // namespace tutti::placement
