#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {

// Calls functions whose time has come. One sleeping thread, started with the first deadline.
// Thread-safe.
class Deadlines {
 public:
  ~Deadlines();

  using Handle = std::pair<int64_t, uint64_t>;

  // Calls `expired`, without a lock held, `timeout_nanos` from now on. Throws when the thread
  // cannot be started.
  Handle Add(int64_t timeout_nanos, std::function<void()> expired);
  // After it returns the function is neither running nor will it run, unless it is the caller.
  void Remove(const Handle& handle);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Handle, std::function<void()>> entries_;  // by time
  Handle running_ = {};                              // whose function is being called
  std::condition_variable returned_;                 // running_ was reset
  uint64_t next_ = 1;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace tutti
