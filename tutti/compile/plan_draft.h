#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/step_plan.h"

namespace tutti {

// A StepPlan in the making, and what is needed only while it is made.
struct PlanDraft {
  StepPlan& plan;
  std::vector<uint32_t>
      root;  // value -> the value whose bytes it shows under another shape, or itself
  std::unordered_set<uint64_t> edges;

  // `to` waits for `from`. Edges that exist are not added twice. REQUIRES: from comes before to.
  void AddEdge(uint32_t from, uint32_t to);
};

// Gives every arena value of the draft its place: lives along the order of nodes, kernels working
// in place, scratch. See place_values.cc.
absl::Status PlaceValues(PlanDraft& draft);

}  // namespace tutti
