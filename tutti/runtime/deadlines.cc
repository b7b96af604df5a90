#include "tutti/runtime/deadlines.h"

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti {

Deadlines::~Deadlines() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Deadlines::Handle Deadlines::Add(int64_t timeout_nanos, std::function<void()> expired) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    thread_ = ValueOrThrow(StartThread("the thread of deadlines", [this] { Loop(); }));
  }
  const int64_t most = INT64_MAX / 2;
  const Handle handle{NowNanos() + std::min(timeout_nanos, most), next_++};
  entries_[handle] = std::move(expired);
  changed_.notify_one();
  return handle;
}

void Deadlines::Remove(const Handle& handle) {
  std::unique_lock lock(mutex_);
  if (entries_.erase(handle) > 0 || std::this_thread::get_id() == thread_.get_id()) return;
  returned_.wait(lock, [&] { return running_ != handle; });
}

void Deadlines::Loop() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = entries_.begin();
    const int64_t left = first->first.first - NowNanos();
    if (left > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left));
      continue;
    }
    running_ = first->first;
    const std::function<void()> expired = std::move(first->second);
    entries_.erase(first);
    lock.unlock();
    expired();
    lock.lock();
    running_ = {};
    returned_.notify_all();
  }
}

}  // namespace tutti
