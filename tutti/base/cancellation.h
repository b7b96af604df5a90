#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "absl/status/status.h"

namespace tutti {

// A request to stop, shared by everything that works for one step. Cancel() may be called from any
// thread, any number of times; the first reason stays. Callbacks run once, on the thread that
// cancels, without the lock held. Thread-safe; must outlive every registered callback.
class Cancellation {
 public:
  using Handle = uint64_t;
  static constexpr Handle kNone = 0;

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // OK while not cancelled, else the reason.
  absl::Status status() const;

  void Cancel(absl::Status reason);

  // Registers `callback`, to be called on cancellation. If already cancelled, returns kNone and
  // never calls it.
  Handle Register(std::function<void()> callback);

  // After it returns, the callback is not running and will not run, unless the caller is that
  // callback. True if it had not been called. The caller must not hold a lock that the callback
  // takes.
  bool Deregister(Handle handle);

  // Like Deregister, but does not wait for a running callback: for callbacks that own what they use
  // and check for themselves whether they are too late. May be called with any lock held.
  void Forget(Handle handle);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> callbacks_running_{false};
  absl::Status reason_;
  Handle next_ = 1;
  std::map<Handle, std::function<void()>> callbacks_;
};

}  // namespace tutti
