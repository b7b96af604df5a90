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

// What of a plan's memory is in use while the node runs at which most is, if nodes run in the
// plan's order. Where some of them wait for others (AllReduce, Recv), values may live longer.
struct MemoryPeak {
  const Node* node = nullptr;   // null for a plan without nodes
  size_t bytes = 0;             // the arenas are larger by what packing loses
  std::vector<LiveBytes> live;  // the largest first
};

// The peak of `plan`, the first if there are several. A value that shares its bytes with another,
// worked in place or as a view, counts once, under the name of who wrote them last.
MemoryPeak PeakOf(const StepPlan& plan);

}  // namespace tutti
