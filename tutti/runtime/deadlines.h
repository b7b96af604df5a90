#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tutti/base/cancellation.h"

namespace tutti {

// Cancels steps whose time is up. One sleeping thread, started with the first deadline.
// Thread-safe.
class Deadlines {
 public:
  ~Deadlines();

  using Handle = std::pair<int64_t, uint64_t>;

  // Cancels `cancellation` with DEADLINE_EXCEEDED, naming the timeout, `timeout_nanos` from now on.
  Handle Add(int64_t timeout_nanos, Cancellation* cancellation);
  // After it returns the cancellation is not touched any more.
  void Remove(const Handle& handle);

 private:
  struct Entry {
    int64_t timeout_nanos;
    Cancellation* cancellation;
  };
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Handle, Entry> entries_;  // by time
  uint64_t next_ = 1;
  bool closed_ = false;
  std::thread thread_;
};

// A deadline for as long as it lives; none when the timeout is 0 or less.
class ScopedDeadline {
 public:
  ScopedDeadline(Deadlines& deadlines, int64_t timeout_nanos, Cancellation* cancellation)
      : deadlines_(deadlines), set_(timeout_nanos > 0) {
    if (set_) handle_ = deadlines_.Add(timeout_nanos, cancellation);
  }
  ~ScopedDeadline() {
    if (set_) deadlines_.Remove(handle_);
  }
  ScopedDeadline(const ScopedDeadline&) = delete;
  ScopedDeadline& operator=(const ScopedDeadline&) = delete;

 private:
  Deadlines& deadlines_;
  const bool set_;
  Deadlines::Handle handle_;
};

}  // namespace tutti
