#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tutti/cluster/remote/peers.h"
#include "tutti/runtime/rendezvous/meeting_table.h"
#include "tutti/runtime/rendezvous/rendezvous.h"
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

  absl::Status Send(const TransferKey& key, Tensor value) override;
  void Receive(const TransferKey& key, Receiver receiver) override;
  void Abort(absl::Status reason) override;

  // A value came from a task. `bytes` of the window of its link are given back when the value is
  // taken, or now where it is refused.
  absl::Status Deliver(const TransferKeyView& key, Tensor value, const std::shared_ptr<Peer>& from,
                       uint64_t bytes);
  const StepId& id() const { return id_; }
  // The tasks for whose values Recvs wait, "/job:ps/task:0, /job:ps/task:1".
  std::string Awaited() const;
  // A task is gone, and values that it sent may be: ends the step if a Recv waits for one from
  // there, at this moment or later.
  void TaskLost(const std::string& task, const absl::Status& reason);

 private:
  // Whose link has room again when a value is taken.
  struct Window {
    std::shared_ptr<Peer> from;  // null for a value of this task
    uint64_t bytes = 0;

    void GiveBack() const {
      if (from != nullptr) from->Taken(bytes);
    }
  };
  using Table = MeetingTable<Window>;

  bool IsHere(std::string_view device) const;
  absl::Status Leave(const TransferKeyView& key, Tensor value, Window window);
  // The process to which values for that task go: in one step always the same. Null: it must be
  // reached first.
  std::shared_ptr<Peer> RouteTo(std::string_view task);

  const StepId id_;
  const std::shared_ptr<TaskPeers> peers_;
  mutable std::mutex mutex_;
  absl::Status aborted_;
  Table table_;
  std::vector<std::pair<std::string, std::shared_ptr<Peer>>> routes_;
  std::map<std::string, absl::Status, std::less<>> lost_;  // tasks that were lost, and why
};

}  // namespace tutti
