#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/runtime/collectives.h"
#include "tutti/runtime/executor/lane_threads.h"
#include "tutti/runtime/rendezvous_table.h"
#include "tutti/runtime/worker.h"

namespace tutti {

struct LocalWorkerOptions {
  // Devices are named "/job:<job>/task:<task>/cpu:0" and so on. REQUIRES: `job` is a name that
  // DeviceName::Parse takes, `task` is not negative.
  std::string job = "local";
  int task = 0;
  int devices = 1;
  int cores = 1;                                                     // of each device
  std::shared_ptr<collective::Communicator> communicator = nullptr;  // null: no collectives
  RendezvousTable::Make make_rendezvous = nullptr;                   // empty: within this process
  uint64_t incarnation = 0;  // of the process; 0: a random one
};

// The worker of this process. It runs a step before Run returns: its first part on the calling
// thread, which is all of it when there is one device, and the other parts on threads that are kept
// for the next step.
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

  RendezvousTable& rendezvous() { return rendezvous_; }
  // Has the session registered a step here? Values of others are not wanted.
  bool HasSession(uint64_t session) const;
  // The memory of a device, or of the first one when there is none of that name.
  MemoryPool& PoolOf(std::string_view device);

 private:
  struct Registered;
  struct Step;
  class RunningStep;

  absl::StatusOr<uint64_t> DoRegister(RegisterRequest request);
  Device* FindDevice(const std::string& name);
  void RunParts(RunRequest& request, RunResponse& response);
  absl::Status RunAtOnce(Step& step, Registered& registered);

  std::unique_ptr<Collectives> collectives_;
  std::mutex collective_steps_;  // steps with collectives run one after the other
  std::vector<std::unique_ptr<Device>> devices_;
  RendezvousTable rendezvous_;
  LaneThreads threads_;
  mutable std::mutex mutex_;
  uint64_t next_handle_ = 1;
  std::unordered_map<uint64_t, int> sessions_;  // how many steps each has registered
  std::unordered_map<uint64_t, std::shared_ptr<Registered>> registered_;
  std::vector<std::pair<StepId, Cancellation*>> running_;
  std::vector<std::pair<StepId, absl::Status>> aborted_early_;  // before their Run came
};

}  // namespace tutti
