#include "tutti/runtime/deadlines.h"

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti {

Deadlines::~Deadlines() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Deadlines::Handle Deadlines::Add(int64_t timeout_nanos, Cancellation* cancellation) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  const int64_t most = INT64_MAX / 2;
  const Handle handle{NowNanos() + std::min(timeout_nanos, most), next_++};
  entries_[handle] = {timeout_nanos, cancellation};
  changed_.notify_one();
  return handle;
}

void Deadlines::Remove(const Handle& handle) {
  std::lock_guard lock(mutex_);
  entries_.erase(handle);
}

void Deadlines::Loop() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto [when, entry] = *entries_.begin();
    const int64_t left = when.first - NowNanos();
    if (left > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left));
      continue;
    }
    entries_.erase(entries_.begin());
    // Under the lock, so that Remove waits for it. Callbacks of a cancellation never come back
    // here.
    entry.cancellation->Cancel(DeadlineExceeded(
        "the step did not finish within its timeout of {} ms", entry.timeout_nanos / 1e6));
  }
}

}  // namespace tutti
