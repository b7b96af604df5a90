#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti {

// A mutex that adds up how long threads have waited for it, in nanoseconds. Taking a free one costs
// no more than a std::mutex.
class CountedMutex {
 public:
  // `waited` may be null, and may be that of several mutexes.
  explicit CountedMutex(std::shared_ptr<std::atomic<int64_t>> waited)
      : waited_(std::move(waited)) {}

  void lock() {
    if (mutex_.try_lock()) return;
    const int64_t start = NowNanos();
    mutex_.lock();
    if (waited_ != nullptr) waited_->fetch_add(NowNanos() - start, std::memory_order_relaxed);
  }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  const std::shared_ptr<std::atomic<int64_t>> waited_;
};

}  // namespace tutti
