#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tutti/base/cancellation.h"
#include "tutti/device/step_cleanup.h"
#include "tutti/runtime/collectives.h"
#include "tutti/runtime/executor/device_lane.h"
#include "tutti/runtime/executor/executor.h"
#include "tutti/runtime/executor/unfinished.h"
#include "tutti/runtime/rendezvous/rendezvous.h"
#include "tutti/runtime/worker.h"

namespace tutti {

// What a worker keeps of a registered step: a plan for each of its devices that takes part.
struct RegisteredStep {
  struct Part {
    Device* device = nullptr;
    DeviceLane* lane = nullptr;
    size_t first_feed = 0;  // its feeds and fetches in the lists of a request and its response
    size_t first_fetch = 0;
    bool has_collectives = false;
    std::unique_ptr<InstancePool> instances = nullptr;
  };
  std::vector<Part> parts;
  size_t feeds = 0;
  size_t fetches = 0;
  uint64_t session = 0;
  bool has_collectives = false;
  bool has_transfers = false;
  bool brief = false;  // IsBrief
  CompileOptions options;
};

// One run of a registered step: what its parts share. The parts run at the same time, so its
// methods are thread-safe.
class WorkerStep {
 public:
  // All of it outlives the step. `collectives`: null for a step without them; `rendezvous`: null
  // for a step without Send and Recv.
  WorkerStep(RegisteredStep& registered, RunRequest& request, RunResponse& response,
             Cancellation& cancellation, Collectives* collectives,
             Rendezvous* rendezvous = nullptr);

  // Runs a part on the calling thread and waits for its end. Nothing is thrown.
  absl::Status RunHere(RegisteredStep::Part& part, const Patience& patience);

  // A part has ended with an error: the others are to end, too.
  void Failed(const absl::Status& status);

  // All parts have ended; fills the rest of the response. Called once.
  void Finish(absl::Status status);

 private:
  friend class PartRun;
  void AddToTrace(const StepPlan& plan, std::vector<NodeRecord>& records);

  RegisteredStep& registered_;
  RunRequest& request_;
  RunResponse& response_;
  Cancellation& cancellation_;
  Collectives* const collectives_;
  Rendezvous* const rendezvous_;
  const int64_t start_nanos_;
  UnfinishedNodes unfinished_;
  StepCleanup cleanup_;
  std::mutex mutex_;
};

// One part of a step while it runs: the plan's instance with its feeds, and what its run needs.
class PartRun {
 public:
  PartRun(WorkerStep& step, RegisteredStep::Part& part) : step_(step), part_(part) {}

  // Takes an instance and gives it its feeds.
  absl::Status Begin();
  PlanInstance& instance() { return *instance_; }
  StepContext& context() { return context_; }
  collective::Communicator* communicator() const;
  RunSetup Setup(const Patience& patience = {});

  // The run of the instance ended with `status`: takes the results, gives the instance back.
  // REQUIRES: Begin succeeded.
  absl::Status End(absl::Status status);

 private:
  WorkerStep& step_;
  RegisteredStep::Part& part_;
  std::unique_ptr<PlanInstance> instance_;
  StepContext context_;
  std::vector<NodeRecord> records_;
};

}  // namespace tutti
