#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "tutti/base/cancellation.h"

namespace tutti {

// A first-come, first-served lock that blocks no thread: Enter takes a callback. A step that waits
// can be cancelled; it then gives up its place. Thread-safe.
class Turns {
 public:
  using Then = std::function<void(bool has_turn)>;

  // True if it is the caller's turn at once.
  bool TryEnter() {
    std::lock_guard lock(mutex_);
    return !std::exchange(taken_, true);
  }

  // Calls `then(true)` when it is the caller's turn: now, or on the thread that leaves before it.
  // Calls `then(false)` if it would have to wait and `step` is cancelled already. `step` tells
  // whose place it is, see Withdraw. If Enter throws, `then` is not called.
  void Enter(const Cancellation& step, Then then) {
    bool has_turn = false;
    {
      std::lock_guard lock(mutex_);
      if (taken_ && !step.cancelled()) {
        waiting_.push_back({&step, std::move(then)});
        return;
      }
      if (!taken_) has_turn = taken_ = true;
    }
    then(has_turn);
  }

  // Gives up the place of a step that waits. Returns its `then`, which the caller calls with false;
  // null if the step does not wait. REQUIRES: `step` is cancelled.
  Then Withdraw(const Cancellation& step) {
    std::lock_guard lock(mutex_);
    const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Place& waits) { return waits.step == &step; });
    if (place == waiting_.end()) return nullptr;
    Then then = std::move(place->then);
    waiting_.erase(place);
    return then;
  }

  // The turn is over.
  void Leave() {
    Then next;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        taken_ = false;
        return;
      }
      next = std::move(waiting_.front().then);
      waiting_.pop_front();
    }
    next(true);
  }

 private:
  struct Place {
    const Cancellation* step;
    Then then;
  };

  std::mutex mutex_;
  bool taken_ = false;
  std::deque<Place> waiting_;
};

}  // namespace tutti
