#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/engine/activity.h"
#include "tutti/collective/engine/control.h"
#include "tutti/collective/engine/driver.h"
#include "tutti/collective/engine/failure.h"
#include "tutti/collective/engine/group_state.h"
#include "tutti/collective/engine/handle.h"
#include "tutti/collective/engine/late_warning.h"
#include "tutti/collective/engine/operation_table.h"
#include "tutti/collective/operation/open_operation.h"
#include "tutti/collective/operation/scratch_pool.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// The links of a rank with the lock that guards them. Memory that was allocated from them keeps
// them alive.
struct Links {
  std::mutex mutex;
  std::unique_ptr<net::Transport> transport;
};

// Runs the operations of one rank: matches local calls with the messages of peers, gives each
// operation its turn, and ends all of them with one cause if the job fails.
//
// Its parts: the table of open operations, the driver (which thread makes progress, and when it
// sleeps), the failure state (findings and verdict) and the counters. The engine delivers messages
// to their operations and schedules these, all under one lock: that of the links.
//
// Failure. What this rank finds out (a broken link, ranks that disagree) is reported to the
// control plane; operations end when its verdict comes through Fail, so that all ranks name the
// same cause.
//
// Thread-safe.
class Engine final : private Driver::Work {
 public:
  // `control` may be null: then what is found out here is the verdict. It outlives Stop.
  Engine(std::unique_ptr<net::Transport> transport, Control* control, double late_seconds);
  ~Engine();
  // Not OK: the system gave no thread for the sockets, and the engine cannot be used.
  const absl::Status& start_status() const { return start_status_; }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  net::LinkKind link(int peer) const { return links_->transport->link(peer); }
  std::string Describe(int peer) const { return links_->transport->Describe(peer); }

  // Starts an operation. Mistakes end the handle at once.
  Handle Start(GroupState& group, const Call& call, const CallOptions& options);
  // Makes progress until `handle` is done.
  void Wait(const Handle::Impl& handle) { driver_.Wait(handle); }
  // Makes some progress without blocking; true if anything moved.
  bool Poll();
  // Sleeps until Poll may find something to do, Wake is called or the time is over.
  void WaitForWork(int64_t timeout_nanos) { driver_.WaitForWork(timeout_nanos); }
  void Wake() { transport_->Wake(); }
  // Asks the control plane to end the job with `status`.
  void Abort(const absl::Status& status);
  CommunicatorStats stats() const;
  void SetIdle(bool idle);
  // Ends every operation, open and future, with `status`. The first call counts.
  void Fail(const absl::Status& status);
  // Reports a rank as gone that the links themselves cannot detect: operations that need it fail.
  void Left(int peer, const absl::Status& status);
  // Reports that a rank left on purpose. Messages that it sent before may still arrive; operations
  // that need the rank fail after a grace period of 1 s.
  void Leaves(int peer, const absl::Status& status);
  absl::Status status() const;
  // Ends what is open with CANCELLED, and the service thread. The control plane is not called after
  // it.
  void Stop();

  absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Allocate(size_t bytes);
  // Keeps the group as long as the engine lives; a name names one list of ranks.
  absl::StatusOr<GroupState*> AddGroup(std::unique_ptr<GroupState> group);

 private:
  using Lock = Driver::Lock;
  struct Ended {
    std::function<void(const absl::Status&)> callback;
    absl::Status status;
  };

  Handle EndedHandle(absl::Status status);
  absl::StatusOr<Handle> TryStart(GroupState& group, const Call& call, const CallOptions& options);
  absl::StatusOr<Choice> ChoiceOf(const GroupState& group, const Call& call,
                                  const CallOptions& options, int64_t bytes) const;
  void TellProgress();
  bool RunWork();
  void Finish(OpenOperation* operation, absl::Status status);

  // Driver::Work
  bool Progress() override;
  void Idle() override;
  bool has_work() const override { return !runnable_.empty(); }
  bool has_operations() const override { return activity_.started() > 0; }
  void Unlock(Lock& lock) override;

  bool TakeMessages();
  void OnShort(const net::Transport::ShortMessage& message);
  void OnBroken(const net::Transport::BrokenLink& broken);
  void OnError(OpenOperation* operation);
  void Disagree(const absl::Status& status) { failure_.Find(net::kNoRank, status); }
  void Report(const Failure::Finding& finding);

  const std::shared_ptr<Links> links_;
  net::Transport* const transport_;
  Control* const control_;
  const int rank_;
  const int size_;
  HandlePool* const handles_;
  const LateWarning late_;

  // Under links_->mutex, as all below.
  ScratchPool scratch_;
  std::vector<OpenOperation*> runnable_;  // by priority and age
  OperationTable open_;
  std::vector<std::unique_ptr<GroupState>> groups_;
  Activity activity_;
  Failure failure_;
  uint64_t sequence_ = 0;
  uint64_t world_sequence_ = 0;
  uint64_t told_sequence_ = 0;  // to the control plane
  std::vector<Ended> ended_;    // their callbacks are due
  int64_t next_idle_ = 0;
  bool stopping_ = false;
  Driver driver_;
  absl::Status start_status_;
};

}  // namespace tutti::collective
