#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace tutti {

// A first-come, first-served lock that blocks no thread: Enter takes a callback. Thread-safe.
class Turns {
 public:
  // True if it is the caller's turn at once.
  bool TryEnter() {
    std::lock_guard lock(mutex_);
    return !std::exchange(taken_, true);
  }

  // Calls `begin` when it is the caller's turn: now, or on the thread that leaves before it.
  void Enter(std::function<void()> begin) {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(taken_, true)) {
        waiting_.push_back(std::move(begin));
        return;
      }
    }
    begin();
  }

  // The turn is over.
  void Leave() {
    std::function<void()> next;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        taken_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }

 private:
  std::mutex mutex_;
  bool taken_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace tutti
