#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"

namespace tutti {

// A stretch of memory wanted from step position `first` to `last`, both included: a value from the
// node that writes it to the last that reads it, or a node's scratch. Pinned ones name an arena and
// their place in it.
struct MemoryRequest {
  size_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
  int pinned_arena = -1;
  size_t pinned_offset = 0;
};

// One block of memory of a plan, of an allocator kind ("" is ordinary memory). Arena 0 is the
// common one, in which requests share bytes when their lives do not overlap. Pinned arenas
// (buckets) share nothing.
struct ArenaSpec {
  std::string name;
  std::string kind;
  size_t bytes = 0;
};

struct Placement {
  int arena = 0;
  size_t offset = 0;
};

// A place for every request, in order. Grows `arenas` to what is needed; INVALID_ARGUMENT when two
// pinned requests overlap, RESOURCE_EXHAUSTED when a request or an arena passes kMostBytes.
absl::StatusOr<std::vector<Placement>> PlanMemory(std::span<const MemoryRequest> requests,
                                                  std::vector<ArenaSpec>& arenas);

}  // namespace tutti
