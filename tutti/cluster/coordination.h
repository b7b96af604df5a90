#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/cluster/remote/peers.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/net/coordination/store/service.h"

namespace tutti {

// A task's part in the coordination of its cluster. The store lives in the task that `coordinator`
// names, which serves it to the others over their control connections, or in an etcd. A process
// that the store reports as lost is fenced: its connections are closed and new ones are refused.
// Depends on no transport but TaskPeers. Thread-safe.
class Coordination {
 public:
  struct Options {
    std::string coordinator;  // "/job:chief/task:0", or "etcd://host:2379,.../job"
    std::shared_ptr<TaskPeers> peers;
    std::vector<std::string> tasks;        // of the cluster
    std::vector<std::string> fingerprint;  // of the cluster
    std::string place;                     // of this process
    double start_seconds = 60;             // for which the coordinator is tried
    // The task whose end in good order ends this one; "" for none.
    std::string leader;
    // A broken connection to a task of the cluster is reported as its loss.
    bool reports_lost = false;
    std::function<bool()> stopped = nullptr;  // true ends the waiting for the coordinator
    // This task is to end: OK when the leader has ended in good order. Called at most once, on a
    // thread that must not be blocked.
    std::function<void(const absl::Status&)> over;
  };
  // INVALID_ARGUMENT where the coordinator is neither a task of the cluster nor an etcd.
  static absl::StatusOr<std::unique_ptr<Coordination>> Make(Options options);
  ~Coordination();  // REQUIRES: the peers have stopped

  // Joins the job, on a thread of its own: the coordinator may still be starting.
  void Start();
  // Leaves the job, if it has joined.
  void Leave();

  // Answers control calls of other tasks; null where the store is elsewhere.
  const std::shared_ptr<net::StoreService>& service() const { return service_; }
  // The members; waits until this task is one, or cannot become one.
  absl::StatusOr<std::shared_ptr<net::Membership>> membership();
  // Why the job failed; OK if it has not, as far as this task knows.
  absl::Status Failure();
  // The task with the store is gone.
  void CoordinatorLost(const absl::Status& why);
  // The connection to a process broke. CANCELLED: it ended in good order.
  void PeerLost(const net::TaskIdentity& process, const absl::Status& why);

 private:
  explicit Coordination(Options options) : options_(std::move(options)) {}
  absl::StatusOr<std::shared_ptr<net::Store>> OpenStore();
  absl::StatusOr<std::shared_ptr<net::Membership>> TakePlace();
  void Join();
  void OnGone(const net::Departure& departure);
  void Over(const absl::Status& why);

  const Options options_;
  std::string root_ = "tutti/";
  std::shared_ptr<net::StoreService> service_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  absl::Status store_lost_;
  // Shared with the store, which members may hold for longer.
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<absl::StatusOr<std::shared_ptr<net::Membership>>> joined_;
  std::thread thread_;
};

// A process as the store's service knows it.
std::string CallerOf(const net::TaskIdentity& process);

}  // namespace tutti
