#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/pipeline.h"
#include "tutti/device/kernel.h"
#include "tutti/runtime/executor/lane.h"
#include "tutti/runtime/executor/plan_instance.h"
#include "tutti/runtime/executor/step_trace.h"

namespace tutti {

class UnfinishedNodes;

// One run of a plan on a lane: the state machine of the executor. Nested runs (the bodies of If and
// While) share the lane of the run around them. Everything happens on the lane's thread.
class StepRun final : public Completion {
 public:
  // The instance's feeds must have been set. `step` lives until the run is finished.
  StepRun(PlanInstance& instance, Lane& lane, StepContext& step)
      : instance_(instance), lane_(lane), step_(step) {}

  // Runs what is ready, as far as the lane's turn goes. `finished` is called on the lane's thread
  // once everything is done, perhaps before Start returns; the run's result is in status() then. It
  // may destroy the run.
  void Start(std::function<void()> finished);

  // From any thread.
  void NodeDone(uint32_t node, absl::Status status) override;

  // A node that completed elsewhere: what waited for it is ready. Called by the lane.
  void Complete(uint32_t node, absl::Status status);
  // Runs what is ready. Called by the lane.
  void TakeTurn();

  const absl::Status& status() const { return status_; }
  Lane& lane() { return lane_; }
  PlanInstance& instance() { return instance_; }

  // What the nodes did goes here when the run ends, if it is set before Start.
  std::vector<NodeRecord>* records = nullptr;
  // How nested runs are compiled.
  CompileOptions options;
  // Learns what was not done when the step is ended from outside, if it is set.
  UnfinishedNodes* unfinished = nullptr;

 private:
  void RunReady();
  void RunOne(uint32_t node);
  absl::Status Compute(uint32_t node);
  absl::Status StartAsync(uint32_t node);
  void FinishNode(uint32_t node);
  void Fail(uint32_t node, const absl::Status& status);
  void TellUnfinished(uint32_t node);
  void SetOutstanding(uint32_t node, bool outstanding);
  void FinishIfDone();

  friend class Lane;
  StepRun* next_in_lane_ = nullptr;
  bool queued_ = false;  // it waits for its turn

  PlanInstance& instance_;
  Lane& lane_;
  StepContext& step_;
  std::function<void()> finished_;
  absl::Status status_;
  uint32_t outstanding_ = 0;  // asynchronous nodes that have not come back
  uint32_t first_word_ = 0;   // no bit is set in ready words before this one
  bool running_ = false;      // RunReady is on the stack
  std::vector<NodeTiming> timings_;
};

// What a run on a thread may have beside its instance.
struct RunSetup {
  UnfinishedNodes* unfinished = nullptr;             // learns what an ended step has not done
  CompileOptions options = {};                       // of nested runs
  std::vector<NodeRecord>* records = nullptr;        // what the nodes did goes here
  collective::Communicator* communicator = nullptr;  // for a step with collectives
  Patience patience = {};                            // before the thread sleeps
};

// Runs an instance on the calling thread and waits for its end.
absl::Status RunOnThisThread(PlanInstance& instance, StepContext& step, const RunSetup& setup);

}  // namespace tutti
