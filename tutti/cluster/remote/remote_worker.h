#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tutti/cluster/remote/peers.h"
#include "tutti/runtime/worker.h"

namespace tutti {

// A task in another process as its worker, for one session. It is bound to the connection over
// which the task first answers. When that is gone, every call fails: UNAVAILABLE while the task
// cannot be reached, ABORTED over any later connection, since the steps that were registered ended
// with the first one. Both name the task. Answers come on threads of the network. Thread-safe.
class RemoteWorker final : public Worker {
 public:
  // `patience_nanos`: for how long a task is tried that was never reached.
  RemoteWorker(std::shared_ptr<TaskPeers> peers, std::string task, int64_t patience_nanos);

  void ListDevices(DevicesDone done) override;
  void Register(RegisterRequest request, RegisterDone done) override;
  void Deregister(uint64_t handle) override;
  void Run(RunRequest&& request, RunDone done) override;
  void Abort(const StepId& id, absl::Status reason) override;
  void CleanUp(const StepId& id) override;

 private:
  struct Shared;
  void WithPeer(std::function<void(absl::StatusOr<std::shared_ptr<Peer>>)> done);

  const std::shared_ptr<Shared> shared_;  // answers may come when the worker is gone
};

}  // namespace tutti
