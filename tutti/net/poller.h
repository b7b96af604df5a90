#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/socket.h"

namespace tutti::net {

// Is told when its descriptor can be read or written (EPOLLIN, EPOLLOUT, ...).
class EventHandler {
 public:
  virtual void OnEvents(uint32_t events) = 0;

 protected:
  ~EventHandler() = default;
};

// Descriptors, level-triggered in one epoll set, and the way to sleep until one of them has
// something. Sleeping looks at the set from outside and takes no event from it, so one thread may
// sleep while another dispatches, and nothing is lost between the two. The TCP transport is driven
// by whoever makes progress; EventLoop drives one by a thread of its own.
//
// Wait and Wake are thread-safe, the rest is called by one thread at a time. A handler must not be
// destroyed while Dispatch runs.
class Poller {
 public:
  absl::Status Open();

  absl::Status Add(int fd, uint32_t events, EventHandler* handler);
  void Change(int fd, uint32_t events, EventHandler* handler);
  void Remove(int fd);

  // Calls the handlers for all pending events, without waiting. Events from before the call have
  // been handled when it returns.
  void Dispatch();

  // Sleeps until Dispatch would find something, Wake was called since the last Wait, a deadline has
  // come, or the time is over. Looks without sleeping for the first `spin_nanos`.
  enum class Waited : uint8_t {
    kFound,    // something, without sleeping
    kSlept,    // that found nothing
    kCrowded,  // another thread had the core meanwhile: whoever sleeps would have been served
               // sooner
  };
  Waited Wait(int64_t timeout_nanos, int64_t spin_nanos);
  void Wake();  // all that sleep; with nobody asleep, the next that would
  int sleepers() const;

  // Somebody has something to do at that time (of NowNanos) even if no descriptor stirs.
  void WakeBy(int64_t nanos);
  // True, and the deadlines are forgotten, if the earliest has come: all are to be looked at.
  bool DeadlinePassed();

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  bool Ready(int64_t timeout_nanos);
  void Sleep(int64_t timeout_nanos);
  void Settle();  // clears wake_ unless somebody has yet to see it

  Socket epoll_;
  Socket wake_;
  size_t watched_ = 0;  // descriptors
  std::vector<epoll_event> events_;
  // A Wake is for all who sleep: wake_ stays readable until each of them has returned.
  mutable std::mutex mutex_;
  int sleepers_ = 0;
  uint64_t wakes_ = 0;
  int owed_ = 0;  // sleepers that were asleep at the last Wake and have not returned
  std::atomic<int64_t> deadline_ = kNever;
};

}  // namespace tutti::net
