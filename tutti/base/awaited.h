#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tutti/base/spin.h"

namespace tutti {

// A value that a callback delivers, once, on any thread, and that the thread which made this object
// waits for. It may lie on that thread's stack: Wait returns only when the callback has let go of
// it. A callback that comes on the waiting thread itself, before the call that was given it
// returns, takes no lock. Wait looks for the value for a moment before it sleeps.
//
//   Awaited<absl::Status> status;
//   master.Close([&status](absl::Status s) { status.Set(std::move(s)); });
//   ThrowIfError(status.Wait());
template <typename T>
class Awaited {
 public:
  Awaited() = default;
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  // REQUIRES: called once.
  void Set(T&& value) {
    if (std::this_thread::get_id() == owner_) {
      value_.emplace(std::move(value));
      set_here_ = true;
      return;
    }
    std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
    is_set_.store(true, std::memory_order_release);
    // Under the lock: once it is released, the waiting thread may destroy this object.
    set_.notify_one();
  }

  // REQUIRES: called once, on the thread that made this object.
  T Wait() {
    if (set_here_) return *std::move(value_);
    LookFor([this] { return is_set_.load(std::memory_order_acquire); }, {.yield_nanos = 0});
    std::unique_lock lock(mutex_);
    set_.wait(lock, [this] { return value_.has_value(); });
    return *std::move(value_);
  }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable set_;
  std::optional<T> value_;
  std::atomic<bool> is_set_{false};
  bool set_here_ = false;  // by the owner's thread, the only one that reads it
};

}  // namespace tutti
