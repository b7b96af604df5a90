#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// What an algorithm may know when it writes a schedule.
struct Request {
  Operation operation = Operation::kAllReduce;
  int ranks = 1;
  int root = 0;
  int segments = 1;  // pieces a chunk is cut into, for algorithms that pipeline
  int variant = 0;   // what the algorithm's read_variant made of its parameters; 0: none given
  bool leftwards = false;      // ring only: to the rank below instead of above
  std::span<const int> hosts;  // the host of each rank (any numbers); empty: all on one host
};

// A way to do some of the operations. Stateless.
struct Algorithm {
  std::string_view name;     // "ring": as in --algorithm
  std::string_view summary;  // one line
  bool needs_memory_links;   // every rank must reach every other's memory (within a host for
                             // hierarchical)
  bool (*supports)(Operation operation);
  // UNIMPLEMENTED where supports() is false; INVALID_ARGUMENT for a request that makes no sense.
  absl::StatusOr<Schedule> (*make)(const Request& request);

  // True for a baseline that exists for comparison: selectors never choose it, only a call that
  // names it uses it.
  bool for_comparison = false;
  // Parameters after the name, as "2:own" in "central:2:own", as a number from 1 to 255 that goes
  // into requests and envelopes, and back. Null where the algorithm takes none.
  absl::StatusOr<int> (*read_variant)(std::string_view parameters) = nullptr;
  std::string (*name_variant)(int variant) = nullptr;
};

// All of them: exchange, direct, ring, halving-doubling, tree, hierarchical, central.
std::span<const Algorithm> Algorithms();
// By name; NOT_FOUND lists the names there are.
absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name);

}  // namespace tutti::collective
