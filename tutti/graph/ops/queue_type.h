#pragma once

#include "tutti/base/status.h"
#include "tutti/graph/ops/queue.h"

namespace tutti {

// The components that a FIFOQueue or RandomShuffleQueue node declares in its attributes: "dtypes"
// by name; "shapes" as rank and dimensions, one component after the other, -1 for what is unknown.
absl::StatusOr<QueueComponents> QueueComponentsOf(const std::vector<std::string>& dtypes,
                                                  const std::vector<int64_t>& shapes);
absl::StatusOr<QueueComponents> QueueComponentsOf(const Node& queue);

}  // namespace tutti
