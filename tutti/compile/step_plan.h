#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/memory_plan.h"
#include "tutti/compile/program.h"
#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"

namespace tutti {

// Where the bytes of a value come from.
enum class Storage : uint8_t {
  kArena,     // a fixed place in one of the plan's arenas
  kConstant,  // a Constant's own tensor
  kFeed,      // what the caller gave
  kPool,  // allocated from the device's pool before the node runs: it leaves the step, or its size
          // varies
  kProvided,  // set by the node's kernel: a variable's value, what came from a queue, a view at run
              // time
};

// One value of a step.
struct PlanValue {
  ValueType type;
  Layout layout;
  Storage storage = Storage::kProvided;
  int arena = 0;
  size_t offset = 0;
  uint32_t uses = 0;  // nodes that read it; pool and provided values are dropped after the last
  bool fetched = false;
  Tensor constant;
};

// One node of a step.
struct PlanNode {
  const Node* node = nullptr;
  const KernelDef* kernel = nullptr;
  std::vector<uint32_t> inputs;      // values
  std::vector<uint32_t> outputs;     // values
  std::vector<uint32_t> successors;  // nodes that wait for this one
  uint32_t waits_for = 0;            // how many nodes this one waits for
  bool shapes_known = true;          // else it is prepared again at run time
  bool needs_allocation = false;     // some output is kPool
  bool inputs_joined = false;        // a bucket whose inputs lie side by side in registered memory
  int scratch_arena = 0;
  size_t scratch_offset = 0;
  size_t scratch_bytes = 0;

  // Prepared when the plan is made. Not so a kernel that writes into memory whose size only the run
  // can tell: it is prepared at run time.
  bool prepared_early() const;
};

// A step on one device, compiled: nodes in the order in which one lane runs them, values with their
// places in memory. Immutable; runs of it have what changes (PlanInstance).
struct StepPlan {
  Device* device = nullptr;
  Program program;  // owns the nodes
  std::vector<PlanNode> nodes;
  std::vector<PlanValue> values;
  std::vector<ArenaSpec> arenas;
  std::vector<uint32_t> feeds;    // values, in the order of program.feeds
  std::vector<uint32_t> fetches;  // values, in the order of program.fetches
  bool has_async = false;
  // Prepared once to learn how much scratch they want, and handed to the first instance. One for
  // each node, null where it cannot be prepared early.
  mutable std::vector<std::unique_ptr<Kernel>> first_kernels;

  size_t arena_bytes() const;
};

// A fresh kernel for a node of the plan, prepared for its planned types. Sets *scratch_bytes.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareKernel(const StepPlan& plan, const PlanNode& node,
                                                      size_t* scratch_bytes);

// Plans `program` on `device`. The order of nodes is that of order.h: updates run as soon as their
// gradient is there, so that it does not outlive its use; readers of a variable come before its
// updates, so that those work in place. INVALID_ARGUMENT or UNIMPLEMENTED when a node has no
// kernel, naming the kernels there are.
absl::StatusOr<std::unique_ptr<StepPlan>> MakeStepPlan(Program program, Device& device);

}  // namespace tutti
