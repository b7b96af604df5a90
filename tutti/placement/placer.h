#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/placement/simulate.h"
#include "tutti/placement/step_costs.h"

namespace tutti::placement {

using Method = PlacementMethod;
std::string_view NameOf(Method method);
// INVALID_ARGUMENT with the words there are.
absl::StatusOr<Method> ParseMethod(std::string_view text);

// Where everything goes, and why.
struct Plan {
  std::vector<int> device;         // by group
  std::vector<Decision> decision;  // by group
  // By group: when its first node that takes time would have ended on each allowed device, as the
  // decision saw it; infinite where it does not fit. Empty where nothing was compared.
  std::vector<std::vector<double>> finish;
  std::string how;  // "greedy in the order of the program", "search: 12 of 300 moves"
  Simulation simulation;
};

struct PlanOptions {
  Method method = Method::kSearch;
  bool keep_finish = false;   // fill Plan::finish
  int64_t most_moves = 4000;  // of the search
  // What the search may spend, in nodes simulated.
  int64_t most_simulated = 2'000'000;
};

// RESOURCE_EXHAUSTED when some device's memory cannot hold what must lie there: with the largest
// values and by how much. REQUIRES: method is not kManual.
absl::StatusOr<Plan> MakePlan(const StepCosts& costs, const PlanOptions& options);

// Each group on the device that has been decided, as `device` says: what the manual placement
// costs, for comparison. Checks memory as above.
absl::StatusOr<Plan> PlanFor(const StepCosts& costs, std::vector<int> device, std::string how);

// OK if the peaks fit. `costs` names what is largest.
absl::Status CheckMemory(const StepCosts& costs, std::span<const int> device,
                         const Simulation& simulation);

}  // namespace tutti::placement
