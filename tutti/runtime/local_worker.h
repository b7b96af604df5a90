#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/placement/state_homes.h"
#include "tutti/runtime/collectives.h"
#include "tutti/runtime/executor/device_lane.h"
#include "tutti/runtime/rendezvous/rendezvous_table.h"
#include "tutti/runtime/turns.h"
#include "tutti/runtime/worker.h"
#include "tutti/runtime/worker_step.h"

namespace tutti {

struct LocalWorkerOptions {
  // Devices are named "/job:<job>/task:<task>/cpu:0" and so on. REQUIRES: `job` is a name that
  // DeviceName::Parse takes, `task` is not negative.
  std::string job = "local";
  int task = 0;
  int devices = 1;
  int cores = 1;  // of each device, where they are not pinned
  // By device: the cores to which it is pinned. Empty: none is.
  std::vector<std::vector<int>> pinned = {};
  int64_t device_memory = 0;  // bytes that placement may give a device; 0: those of the host
  bool crowded = false;       // the devices have more cores than there are: lanes do not spin
  std::shared_ptr<collective::Communicator> communicator = nullptr;  // null: no collectives
  RendezvousTable::Make make_rendezvous = nullptr;                   // empty: within this process
  uint64_t incarnation = 0;  // of the process; 0: a random one
};

// The worker of this process. Every device has a lane, on which the parts of all steps take turns.
// Run gives the parts of a step to the lanes of their devices and returns; `done` is called on the
// lane that ends the last part. If the caller has nothing else to do (RunRequest::caller_waits) its
// thread runs the first part itself, unless that lane is at work: a step of one part then needs no
// other thread, and `done` is called before Run returns.
// REQUIRES: destroyed when every Run was answered; that may happen in the last `done`.
class LocalWorker final : public Worker {
 public:
  explicit LocalWorker(LocalWorkerOptions options);
  ~LocalWorker() override;

  void ListDevices(DevicesDone done) override;
  void Register(RegisterRequest request, RegisterDone done) override;
  void Deregister(uint64_t handle) override;
  void Run(RunRequest&& request, RunDone done) override;
  void Abort(const StepId& id, absl::Status reason) override;
  void CleanUp(const StepId& id) override;

  // Forgets the variables and queues of a container on all devices. Registered steps keep those
  // that they use.
  void Reset(const std::string& container);

  // By device.
  std::vector<DeviceStats> stats() const;

  // Where state lives on this task and others that nobody has placed, for all its sessions.
  const std::shared_ptr<placement::StateHomes>& homes() const { return homes_; }

  RendezvousTable& rendezvous() { return rendezvous_; }
  // Is the step, by what Register gave, done sooner than its lane could be woken (IsBrief)? Then a
  // thread that has other things to do may run it as one whose caller waits.
  bool RunsBriefly(uint64_t handle) const;
  // Has the session registered a step here? Values of others are not wanted.
  bool HasSession(uint64_t session) const;
  // The memory of a device, or of the first one when there is none of that name.
  MemoryPool& PoolOf(std::string_view device);
  // Where the pools of all devices get large blocks from.
  void SetMemorySource(const MemoryPool::Source& source, size_t least);

 private:
  class RunningStep;
  class PostedStep;

  absl::StatusOr<uint64_t> DoRegister(RegisterRequest request);
  absl::StatusOr<size_t> FindDevice(const std::string& name) const;
  static absl::Status Check(const RunRequest& request, const RegisteredStep* registered);
  bool RunOnCaller(RunRequest& request, RunResponse& response, absl::Status& aborted);
  bool AwaitTurn(const Cancellation& cancellation, RunResponse& response);

  std::unique_ptr<Collectives> collectives_;
  Turns collective_steps_;  // steps with collectives run one after the other
  std::vector<std::unique_ptr<Device>> devices_;
  RendezvousTable rendezvous_;
  const Patience patience_;  // of callers that run a part
  const int64_t device_memory_;
  const std::shared_ptr<placement::StateHomes> homes_ = std::make_shared<placement::StateHomes>();
  mutable std::mutex mutex_;
  uint64_t next_handle_ = 1;
  std::unordered_map<uint64_t, int> sessions_;  // how many steps each has registered
  std::unordered_map<uint64_t, std::shared_ptr<RegisteredStep>> registered_;
  std::vector<std::pair<StepId, Cancellation*>> running_;
  std::vector<std::pair<StepId, absl::Status>> aborted_early_;  // before their Run came
  std::vector<std::unique_ptr<DeviceLane>> lanes_;  // by device; they end before what they use
};

}  // namespace tutti
