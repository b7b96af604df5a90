#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/control.h"
#include "tutti/collective/group_state.h"
#include "tutti/collective/handle.h"
#include "tutti/collective/open_operation.h"
#include "tutti/collective/scratch_pool.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// The links of a rank with the lock that guards them. Memory that was allocated from them keeps
// them alive.
struct Links {
  std::mutex mutex;
  std::unique_ptr<net::Transport> transport;
};

// Runs the operations of one rank: matches them with what peers say, gives each its turn, and ends
// them all with one cause when the job fails.
//
// Progress (DESIGN D12). Whoever waits for an operation drives: it makes progress for all of them,
// and sleeps in the transport when nothing moves. There is one driver at a time; others that wait
// sleep until their operation is done or the driver leaves. Poll lends a hand from outside. Where
// links need serving (sockets), a thread sleeps in the transport when callers have ceased to drive.
//
// Failure. What this rank finds out (a broken link, ranks that disagree) is reported to the
// control plane; operations end when its verdict comes through Fail, so that all ranks name the
// same cause.
//
// Thread-safe.
class Engine {
 public:
  // `control` may be null: then what is found out here is the verdict. It outlives Stop.
  Engine(std::unique_ptr<net::Transport> transport, Control* control, double late_seconds);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  net::LinkKind link(int peer) const { return links_->transport->link(peer); }
  std::string Describe(int peer) const { return links_->transport->Describe(peer); }

  // Starts an operation. Mistakes end the handle at once.
  Handle Start(GroupState& group, const Call& call, const CallOptions& options);
  // Makes progress until `handle` is done.
  void Wait(Handle::Impl& handle);
  bool Poll();
  // Sleeps until Poll may find something to do, Wake is called or the time is over.
  void WaitForWork(int64_t timeout_nanos);
  void Wake() { transport_->Wake(); }
  // Asks the control plane to end the job with `status`.
  void Abort(const absl::Status& status);
  CommunicatorStats stats() const;
  void SetIdle(bool idle);
  // Ends every operation, open and future, with `status`. The first call counts.
  void Fail(const absl::Status& status);
  // A rank is gone, as the links themselves cannot tell: what needs it fails.
  void Left(int peer, const absl::Status& status);
  // A rank left on purpose. What it sent before may come yet; what needs it fails after a moment.
  void Leaves(int peer, const absl::Status& status);
  absl::Status status() const;
  // Ends what is open with CANCELLED, and the service thread. The control plane is not called after
  // it.
  void Stop();

  absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Allocate(size_t bytes);
  // Keeps the group as long as the engine lives; a name names one list of ranks.
  absl::StatusOr<GroupState*> AddGroup(std::unique_ptr<GroupState> group);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Ended {
    std::function<void(const absl::Status&)> callback;
    absl::Status status;
  };

  // engine.cc: operations
  Handle EndedHandle(absl::Status status, std::string_view algorithm = "");
  absl::StatusOr<Handle> TryStart(GroupState& group, const Call& call, const CallOptions& options);
  void TellProgress();
  void CountStart(OpenOperation& operation, int64_t bytes);
  void CountWait(const OpenOperation& operation, int peer);
  OpenOperation* Slot(uint64_t id);  // open or opened; null: too many
  void OnShort(const net::Transport::ShortMessage& message);
  bool RunWork();
  void Finish(OpenOperation* operation, absl::Status status);
  // Unlocks, and tells outside what is due: callbacks, and reports to the control plane.
  void Unlock(Lock& lock);

  // engine_progress.cc: drivers
  bool Progress();
  bool TakeMessages();
  void Idle();  // now and then, when nothing moves
  void Drive(Lock& lock, const Handle::Impl& handle);
  void Sleep(Lock& lock);
  void Serve();

  // engine_failure.cc
  void OnBroken(const net::Transport::BrokenLink& broken);
  void OnError(OpenOperation* operation);
  void Lost(int peer, const absl::Status& status);  // reports a lost rank, or a failure (-1)
  void Disagree(const absl::Status& status) { Lost(-1, status); }
  void Report(int peer, const absl::Status& status);
  void MissLeavers(int64_t now);
  void WarnIfLate(OpenOperation* operation, int64_t now);

  const std::shared_ptr<Links> links_;
  net::Transport* const transport_;
  Control* const control_;
  const int rank_;
  const int size_;
  const int64_t late_nanos_;
  HandlePool* const handles_;
  const int looks_;  // of a driver for messages, before it lets go of the lock and sleeps

  // Under links_->mutex, as all below.
  ScratchPool scratch_;
  Workshop workshop_;
  std::vector<OpenOperation*> runnable_;  // by priority and age
  absl::flat_hash_map<uint64_t, OpenOperation*> open_;
  std::vector<std::unique_ptr<OpenOperation>> slots_;
  std::vector<OpenOperation*> free_;
  std::vector<std::unique_ptr<GroupState>> groups_;
  CommunicatorStats stats_;
  size_t started_ = 0;        // operations that are open and called
  int64_t active_since_ = 0;  // while there are any
  int idle_ = 0;              // callers that poll and have nothing else to do
  int64_t idle_since_ = 0;    // while there are any
  int64_t waited_until_ = 0;  // no time before it is counted as waiting again
  uint64_t sequence_ = 0;
  uint64_t world_sequence_ = 0;
  uint64_t told_sequence_ = 0;  // to the control plane
  std::vector<Ended> ended_;    // their callbacks are due
  bool report_due_ = false;     // of expected_
  std::atomic<size_t> open_count_{0};

  absl::Status failure_;
  std::atomic<bool> failed_{false};
  absl::Status expected_;  // what was found out here; a verdict on it is waited for
  int expected_peer_ = -1;
  int64_t verdict_deadline_ = 0;
  std::vector<absl::Status> broken_;              // by rank
  std::vector<net::Transport::BrokenLink> gone_;  // to be looked at
  struct Leaver {
    net::Transport::BrokenLink link;
    int64_t missed_nanos = 0;  // from when on it counts as gone
  };
  std::vector<Leaver> leavers_;

  std::condition_variable changed_;  // an operation is done, or the driver has left
  bool driven_ = false;
  uint64_t drives_ = 0;  // how often somebody began to drive
  bool asleep_ = false;  // the driver, in the transport
  int waiting_ = 0;      // for the condition
  int64_t next_idle_ = 0;
  bool stopping_ = false;
  std::condition_variable parked_;  // the service thread, while callers drive
  std::thread service_;
};

}  // namespace tutti::collective
