#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/step_plan.h"

namespace tutti {

// What one run of a plan needs for itself: memory, kernels, values, counters. Made once and used by
// one run after the other; runs at the same time have one each. Not thread-safe.
class PlanInstance {
 public:
  static absl::StatusOr<std::unique_ptr<PlanInstance>> Make(const StepPlan& plan);

  const StepPlan& plan() const { return plan_; }

  // A node ready to run.
  struct RunNode {
    Kernel* kernel = nullptr;
    KernelContext context;
    const uint32_t* successors = nullptr;
    const uint32_t* drops = nullptr;  // values whose use count falls when the node is done
    uint32_t successor_count = 0;
    uint32_t drop_count = 0;
    uint32_t flags = 0;         // of the kinds below; 0 is the fast path
    bool long_running = false;  // works on much memory: gathered sends are flushed before it runs
  };
  static constexpr uint32_t kNeedsAllocation = 1;  // outputs of known shape from the pool
  static constexpr uint32_t kUnknownShapes = 2;    // prepared at run time
  static constexpr uint32_t kAsync = 4;

  std::vector<RunNode>& nodes() { return nodes_; }
  Tensor& value(uint32_t s) { return values_[s]; }

  // Counters of the run.
  std::vector<uint32_t>& waiting() { return waiting_; }  // by node: how many it still waits for
  // Bit i: node i waits for nothing and has not started.
  std::vector<uint64_t>& ready() { return ready_; }
  // Bit i: the asynchronous node i was started and is not done. All are 0 between runs.
  std::vector<uint64_t>& outstanding() { return outstanding_; }

  // Resets the counters and marks the nodes that wait for nothing as ready.
  void BeginRun(StepContext* step, Completion* completion);

  // Drops the values that do not belong to the plan: feeds, pool memory, references to variables.
  void EndRun();

  // Before a node with flags runs: infers unknown shapes, prepares its kernel if they are new,
  // allocates what the pool provides.
  absl::Status PrepareToRun(uint32_t node);

  // After a node has run: values that nobody else reads are dropped.
  void DropInputs(const RunNode& node) {
    for (uint32_t k = 0; k < node.drop_count; ++k) {
      const uint32_t s = node.drops[k];
      if (--uses_[s] == 0) values_[s] = Tensor();
    }
  }

 private:
  explicit PlanInstance(const StepPlan& plan) : plan_(plan) {}
  absl::Status AllocateArenas();
  absl::Status MakeKernels();
  void MakeNodes();
  void MakeNode(uint32_t i);
  absl::Status PrepareUnknown(uint32_t i);

  const StepPlan& plan_;
  std::vector<BufferRef> arenas_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Tensor> values_;
  std::vector<Tensor*> pointers_;  // inputs and outputs of all contexts
  std::vector<uint32_t> successors_;
  std::vector<uint32_t> drops_;
  std::vector<RunNode> nodes_;
  std::vector<uint32_t> waiting_, initial_waiting_;
  std::vector<uint32_t> uses_, initial_uses_;
  std::vector<uint64_t> ready_, initial_ready_;
  std::vector<uint64_t> outstanding_;
  std::vector<uint32_t> transient_;  // values that EndRun drops
  struct Unknown {                   // what a node with unknown shapes was last prepared for
    std::vector<ValueType> inputs;
    std::vector<ValueType> outputs;
    Tensor scratch;
    bool prepared = false;
  };
  std::vector<std::unique_ptr<Unknown>> unknown_;
};

// The idle instances of a plan. Thread-safe.
class InstancePool {
 public:
  // Makes the first one, so that a plan whose memory cannot be had fails early.
  static absl::StatusOr<std::unique_ptr<InstancePool>> Make(std::unique_ptr<StepPlan> plan);

  const StepPlan& plan() const { return *plan_; }
  absl::StatusOr<std::unique_ptr<PlanInstance>> Take();
  void Return(std::unique_ptr<PlanInstance> instance);

 private:
  explicit InstancePool(std::unique_ptr<StepPlan> plan) : plan_(std::move(plan)) {}

  std::unique_ptr<StepPlan> plan_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlanInstance>> idle_;
};

}  // namespace tutti
