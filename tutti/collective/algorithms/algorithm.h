#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/schedule.h"

namespace tutti::collective {

// What an algorithm may know when it writes a schedule.
struct Request {
  Operation operation = Operation::kAllReduce;
  int ranks = 1;
  int root = 0;
  int segments = 1;  // pieces a chunk is cut into, for algorithms that pipeline
  int servers = 1;   // parameter-server only
  bool own_hosts =
      false;  // parameter-server only: the last `servers` ranks serve and bring nothing
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
};

// All of them: exchange, direct, ring, halving-doubling, tree, hierarchical, parameter-server.
std::span<const Algorithm> Algorithms();
// By name; NOT_FOUND lists the names there are.
absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name);

}  // namespace tutti::collective
