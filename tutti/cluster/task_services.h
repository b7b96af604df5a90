#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/metrics/metrics.h"
#include "tutti/cluster/master_service.h"
#include "tutti/cluster/remote/peers.h"
#include "tutti/cluster/task_status.h"
#include "tutti/cluster/worker_service.h"
#include "tutti/net/coordination/store/service.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {

// All that a task of a cluster answers: a worker for masters elsewhere, and masters for clients.
// Knows no transport. Thread-safe.
class TaskServices final : public Services {
 public:
  struct Options {
    std::shared_ptr<LocalWorker> worker;
    std::shared_ptr<TaskPeers> peers;
    std::string address;             // of this task, for status
    std::vector<std::string> tasks;  // of the cluster, this one included
    int64_t patience_nanos = 0;      // for tasks that were never reached
    // The task whose end is the end of this one; "" for none. `over` is called when it is gone, or
    // cannot be reached: OK when it ended in good order.
    std::string coordinator = {};
    std::function<void(const absl::Status&)> over = nullptr;
    // A process is gone, with its last connection; CANCELLED: in good order.
    std::function<void(const net::TaskIdentity&, const absl::Status&)> lost = nullptr;
    // The store of the cluster's coordination, where this task has it.
    std::shared_ptr<net::StoreService> store = nullptr;
  };
  explicit TaskServices(Options options);
  ~TaskServices() override;  // REQUIRES: no call comes any more

  // Connects to the coordinator, if there is one.
  void Start();

  // Before the end: waits for the steps of others that are nearly done.
  void FinishSteps() { worker_.AwaitAnswers(std::chrono::milliseconds(500)); }

  // A master for a session of this process or of a client: over the workers of all tasks, with this
  // one as the home of what nobody places.
  std::unique_ptr<Master> MakeMaster(const CompileOptions& options) const;

  void OnRequest(const std::shared_ptr<Peer>& peer, DataKind kind, uint64_t call,
                 PeerMessage message) override;
  void OnControl(const std::shared_ptr<Peer>& peer, ControlMethod method, std::string fields,
                 std::vector<Tensor> tensors, ControlDone done) override;
  void OnLost(const std::shared_ptr<Peer>& peer, const absl::Status& reason) override;

  // Sessions, what was refused, and the bytes of links. This object must outlive their readers.
  void AddMetrics(MetricsRegistry& metrics) const;
  TaskStatus Status() const;
  // Parts of steps that other tasks asked for, so far; may outlive this object.
  std::shared_ptr<const std::atomic<int64_t>> requests() const { return worker_.requests(); }
  // Of a task of the cluster, this one or another; one that does not answer has an error. May take
  // as long as a task that does not answer is tried: on a thread that may.
  TaskStatus StatusOf(const std::string& task) const;
  // Of all tasks, which are asked at the same time.
  std::vector<TaskStatus> ClusterStatus() const;
  // Forgets the variables and queues of a container on all tasks.
  absl::Status ResetAll(const std::string& container) const;

  const Options& options() const { return options_; }

 private:
  // Calls all other tasks at the same time. The replies are parallel to the tasks of the cluster;
  // that of this task is empty.
  std::vector<absl::StatusOr<std::string>> AskOthers(ControlMethod method,
                                                     const std::string& fields) const;

  const Options options_;
  const int64_t started_;
  WorkerService worker_;
  MasterService master_;
  LaneThreads threads_;  // last: its jobs use the rest
};

}  // namespace tutti
