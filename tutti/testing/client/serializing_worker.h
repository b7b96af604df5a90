#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "tutti/runtime/executor/lane_threads.h"
#include "tutti/runtime/worker.h"

namespace tutti::testing {

// A worker as if it were in another process: every request and every response is turned into bytes
// and back, and answers come on other threads, in random order. It proves that messages own all
// that they need, that callers wait, and that no call is under way when it is destroyed.
// Thread-safe.
class SerializingWorker final : public Worker {
 public:
  // With `hold_calls` half of all calls of Run return only after their answer was given. For a
  // worker that is its master's only one: others would not get their requests meanwhile.
  SerializingWorker(std::shared_ptr<Worker> worker, uint64_t seed, bool hold_calls = false);
  ~SerializingWorker() override;

  void ListDevices(DevicesDone done) override;
  void Register(RegisterRequest request, RegisterDone done) override;
  void Deregister(uint64_t handle) override;
  void Run(RunRequest&& request, RunDone done) override;
  void Abort(const StepId& id, absl::Status reason) override;
  void CleanUp(const StepId& id) override;

 private:
  // Runs `job` on another thread, before or after others that were posted.
  void Post(std::function<void()> job);
  bool Coin();

  const std::shared_ptr<Worker> worker_;
  const bool hold_calls_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<std::function<void()>> pending_;
  std::atomic<int> calls_ = 0;  // of Run, which have not returned
  LaneThreads threads_;         // last, so that jobs end before what they use
};

}  // namespace tutti::testing
