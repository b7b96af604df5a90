#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/compile/step_plan.h"

namespace tutti {

// Something that lies in planned memory: a value, by the node that wrote it, or a node's scratch.
struct LiveBytes {
  const Node* node = nullptr;
  bool scratch = false;
  size_t bytes = 0;
};

// The peak of a plan's memory: the node at which the most planned bytes are in use, and what uses
// them, if nodes run in the plan's order. Where nodes wait for others (AllReduce, Recv), values may
// live longer.
struct MemoryPeak {
  const Node* node = nullptr;   // null for a plan without nodes
  size_t bytes = 0;             // the arenas are larger by what packing loses
  std::vector<LiveBytes> live;  // the largest first
};

// The peak of `plan`, the first if there are several. Values that share their bytes, because a
// kernel works in place or because one is a view of the other, count once, under the name of the
// node that wrote them last.
MemoryPeak PeakOf(const StepPlan& plan);

}  // namespace tutti
