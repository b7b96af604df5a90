#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tutti/cluster/peers.h"
#include "tutti/runtime/local_rendezvous.h"
#include "tutti/runtime/step_id.h"

namespace tutti {

// The rendezvous of one step on one task of a cluster. A value for a device of this task is passed
// by reference; one for another task is pushed over the link to it as soon as it is sent, and waits
// there for its Recv. Values from other tasks come in through Deliver. Thread-safe.
class ClusterRendezvous final : public Rendezvous,
                                public std::enable_shared_from_this<ClusterRendezvous> {
 public:
  ClusterRendezvous(StepId id, std::shared_ptr<TaskPeers> peers);
  ~ClusterRendezvous() override;

  absl::Status Send(const std::string& key, Tensor value) override;
  void Receive(const std::string& key, Receiver receiver) override;
  void Abort(absl::Status reason) override;

  // A value came from a task. `bytes` of the window of its link are given back when the value is
  // taken, or now where it is refused.
  absl::Status Deliver(const std::string& key, Tensor value, std::shared_ptr<Peer> from,
                       uint64_t bytes);
  const StepId& id() const { return id_; }
  // The tasks for whose values Recvs wait, "/job:ps/task:0, /job:ps/task:1".
  std::string Awaited() const;
  // A task is gone, and values that it sent may be: ends the step if a Recv waits for one from
  // there, at this moment or later.
  void TaskLost(const std::string& task, const absl::Status& reason);

 private:
  struct Early {
    std::shared_ptr<Peer> from;
    uint64_t bytes = 0;
  };

  bool IsHere(std::string_view device) const;
  // A value of another task reached its Recv, or an error did.
  void Arrived(const std::string& key);

  const StepId id_;
  const std::shared_ptr<TaskPeers> peers_;
  LocalRendezvous local_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Early> early_;     // values whose bytes count in a window
  std::map<std::string, int, std::less<>> awaited_;  // Recvs that wait, by the task they wait for
  std::map<std::string, absl::Status> lost_;  // tasks that were lost during the step, and why
};

}  // namespace tutti
