#include "tutti/runtime/executor/lane_threads.h"

#include <utility>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti {

LaneThreads::~LaneThreads() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LaneThreads::Post(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (idle_ < jobs_.size() + 1) {
    absl::StatusOr<std::thread> thread = StartThread("a thread of a lane", [this] { Loop(); });
    if (thread.ok()) {
      threads_.push_back(*std::move(thread));
    } else if (threads_.empty()) {
      ThrowIfError(thread.status());  // else the job waits for one of those that there are
    }
  }
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

void LaneThreads::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace tutti
