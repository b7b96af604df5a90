#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tutti {

// A value that a callback delivers, once, on any thread, and that the thread which made this object
// waits for. It may lie on that thread's stack: Wait returns only when the callback has let go of
// it. A callback that comes on the waiting thread itself, before the call that was given it
// returns, takes no lock.
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
    // Under the lock: once it is released, the waiting thread may destroy this object.
    set_.notify_one();
  }

  // REQUIRES: called once, on the thread that made this object.
  T Wait() {
    if (set_here_) return *std::move(value_);
    std::unique_lock lock(mutex_);
    set_.wait(lock, [this] { return value_.has_value(); });
    return *std::move(value_);
  }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable set_;
  std::optional<T> value_;
  bool set_here_ = false;  // by the owner's thread, the only one that reads it
};

}  // namespace tutti
