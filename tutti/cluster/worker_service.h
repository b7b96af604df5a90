#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tutti/cluster/remote/peer.h"
#include "tutti/cluster/task_status.h"
#include "tutti/runtime/executor/lane_threads.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {

// The worker of this task as masters in other processes use it. It remembers what each of them has
// registered and runs, so that all of it ends and is freed when the master is gone. Every method
// returns at once. Thread-safe.
class WorkerService {
 public:
  explicit WorkerService(std::shared_ptr<LocalWorker> worker);
  ~WorkerService();  // REQUIRES: no call comes any more. Waits for the steps of others to end

  // On the link. A Run is answered on it.
  void Run(const std::shared_ptr<Peer>& master, uint64_t call, PeerMessage message);
  void Value(const std::shared_ptr<Peer>& from, PeerMessage message);

  // Control.
  void Register(const std::shared_ptr<Peer>& master, std::string fields,
                std::vector<Tensor> tensors, ControlDone done);
  void Deregister(const std::shared_ptr<Peer>& master, std::string_view fields, ControlDone done);
  void Abort(const std::shared_ptr<Peer>& master, std::string_view fields, ControlDone done);
  void CleanUp(const std::shared_ptr<Peer>& master, std::string_view fields, ControlDone done);
  void Reset(std::string_view fields, ControlDone done);

  // Waits, at most this long, until the runs of other processes are answered, so that a task that
  // ends still reports the results of the work that it has done.
  void AwaitAnswers(std::chrono::nanoseconds at_most);

  // A process is gone: a master, or one that sent values.
  void PeerLost(const Peer& peer, const absl::Status& reason);

  // Fills in what this service knows.
  void Describe(TaskStatus& status) const;
  // Runs that masters elsewhere asked for, so far.
  std::shared_ptr<const std::atomic<int64_t>> requests() const { return requests_; }

 private:
  struct Registered {
    uint64_t session = 0;
    std::vector<ValueType> feeds;
    bool brief = false;  // runs on the thread that brings the request
  };
  // What one master has here. Guarded by mutex_.
  struct Account {
    std::shared_ptr<Peer> master;
    absl::Status lost;  // not OK: the master is gone
    std::unordered_map<uint64_t, Registered> handles;
    std::unordered_map<StepId, int64_t, StepIdHash> running;  // since when
  };

  // Is the session of that master, as far as its registered steps tell?
  bool Owns(const Account& account, uint64_t session) const;
  std::shared_ptr<Account> AccountOf(const std::shared_ptr<Peer>& master);
  absl::Status CheckRun(Account& account, RunRequest& request);
  void RunNow(const std::shared_ptr<Account>& account, uint64_t call, RunRequest request);
  void RegisterNow(const std::shared_ptr<Account>& account, RegisterRequest request,
                   const ControlDone& done);

  const std::shared_ptr<LocalWorker> worker_;
  mutable std::mutex mutex_;
  std::map<const Peer*, std::shared_ptr<Account>> accounts_;
  std::atomic<uint64_t> refused_values_{0};
  const std::shared_ptr<std::atomic<int64_t>> requests_ = std::make_shared<std::atomic<int64_t>>(0);
  int open_runs_ = 0;              // that were not answered
  std::condition_variable ended_;  // open_runs_ is 0
  LaneThreads threads_;            // last: its jobs use the rest
};

}  // namespace tutti
