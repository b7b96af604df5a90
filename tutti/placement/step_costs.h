#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/place.h"
#include "tutti/compile/program.h"
#include "tutti/placement/machines.h"

namespace tutti::placement {

// Why a group of nodes is where it is.
enum class Decision : uint8_t {
  kOpen,       // not decided
  kOnly,       // there is one device
  kRequested,  // a node of it asks for the device
  kState,      // its variable or queue lives there already
  kConsumer,   // it takes no time, and is where it is first needed
  kEarliest,   // it would finish there first
  kMemory,     // it would finish earlier elsewhere, but does not fit there
  kSearch,     // the step gets shorter by it
};

// Nodes that are placed together: those that follow one another (a variable with its updates and
// slots, a colocated node), and those that the passes would fuse.
struct Group {
  std::vector<int> allowed;     // devices, by number; never empty
  const Node* asks = nullptr;   // the node whose wish narrowed them; null: none
  const Node* first = nullptr;  // the first of its nodes
  double state_bytes = 0;       // of its variables
  bool fixed_state = false;     // its state has a home already
};

// What a program would cost, in a form that a simulator walks fast. Nodes are numbered as in the
// program, so a smaller number never waits for a larger one.
struct StepCosts {
  // A value that one node makes and another waits for.
  struct Edge {
    uint32_t node = 0;   // the other end
    uint32_t value = 0;  // unique for (producer, output); control edges have one of their own
    double bytes = 0;
  };

  const Machines* machines = nullptr;
  const Graph* graph = nullptr;
  std::vector<double> seconds;       // by node, on one core of speed 1; with shares_cores
  std::vector<double> core_seconds;  // the part of it that more cores divide
  std::vector<double> crowding;      // how many times as long with all cores at work; at least 1
  std::vector<double> output_bytes;  // by node: memory that its values take
  std::vector<int> joined;           // by node: the input whose maker computes it; -1: none
  std::vector<uint32_t> group;       // by node
  std::vector<Group> groups;
  std::vector<uint32_t> in_begin, out_begin;  // by node, and one more: into the lists of edges
  std::vector<Edge> in, out;
  uint32_t values = 0;  // how many there are

  size_t size() const { return seconds.size(); }
  std::span<const Edge> inputs(size_t node) const {
    return std::span(in).subspan(in_begin[node], in_begin[node + 1] - in_begin[node]);
  }
  std::span<const Edge> outputs(size_t node) const {
    return std::span(out).subspan(out_begin[node], out_begin[node + 1] - out_begin[node]);
  }
  double SecondsOn(size_t node, int device) const {
    const Machines& m = *machines;
    const double shared = core_seconds[node] / double(m.devices[size_t(device)].cores);
    return (seconds[node] - core_seconds[node] + shared) / m.speed[size_t(device)];
  }
  const Node& NodeOf(size_t node) const { return *graph->nodes()[node]; }
};

struct CostOptions {
  PlaceOptions place;                                  // soft placement
  std::unordered_map<std::string, std::string> homes;  // of variables and queues: by name, a device
  // Nodes go to the first device that is allowed; only those that agree on it are fused.
  bool manual = false;
};

// REQUIRES: `program` and `machines` outlive the result. The errors are those of Place, and a
// kernel that no allowed device has, or states that must lie together and may not.
absl::StatusOr<StepCosts> CostsOf(const Program& program, const Machines& machines,
                                  const CostOptions& options);

}  // namespace tutti::placement
