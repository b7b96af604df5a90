#include "tutti/net/poller.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {

absl::Status Poller::Open() {
  epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) {
    return NoDescriptor("no epoll set", errno);
  }
  return absl::OkStatus();
}

absl::Status Poller::Add(int fd, uint32_t events, EventHandler* handler) {
  epoll_event event = {.events = events, .data = {.ptr = handler}};
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ResourceExhausted("cannot watch a socket: {}", ErrnoText(errno));
  }
  ++watched_;
  return absl::OkStatus();
}

void Poller::Change(int fd, uint32_t events, EventHandler* handler) {
  epoll_event event = {.events = events, .data = {.ptr = handler}};
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::Remove(int fd) {
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr) == 0) --watched_;
}

void Poller::Dispatch() {
  // All that can be ready fit. A handler may change the set, but not the events in hand.
  if (events_.size() < watched_) events_.resize(watched_);
  if (events_.empty()) return;
  const int count = epoll_wait(epoll_.fd(), events_.data(), static_cast<int>(events_.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<size_t>(i)];
    static_cast<EventHandler*>(event.data.ptr)->OnEvents(event.events);
  }
}

bool Poller::Ready(int64_t timeout_nanos) {
  pollfd fds[2] = {{.fd = epoll_.fd(), .events = POLLIN, .revents = 0},
                   {.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
  const timespec timeout = {.tv_sec = timeout_nanos / 1'000'000'000,
                            .tv_nsec = timeout_nanos % 1'000'000'000};
  if (ppoll(fds, 2, &timeout, nullptr) <= 0) return false;
  if ((fds[1].revents & POLLIN) != 0) {
    const std::lock_guard lock(mutex_);
    Settle();
  }
  return true;
}

void Poller::Settle() {
  if (owed_ > 0) return;
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(wake_.fd(), &count, sizeof(count));
}

void Poller::Sleep(int64_t timeout_nanos) {
  uint64_t seen = 0;
  {
    const std::lock_guard lock(mutex_);
    ++sleepers_;
    seen = wakes_;
  }
  Ready(timeout_nanos);
  const std::lock_guard lock(mutex_);
  --sleepers_;
  if (seen == wakes_) return;
  --owed_;
  Settle();
}

int Poller::sleepers() const {
  const std::lock_guard lock(mutex_);
  return sleepers_;
}

Poller::Waited Poller::Wait(int64_t timeout_nanos, int64_t spin_nanos) {
  // Between two looks; a look takes a microsecond.
  constexpr int64_t kCrowdedNanos = 300'000;
  const int64_t start = NowNanos();
  const int64_t end = timeout_nanos < kNever - start ? start + timeout_nanos : kNever;
  const int64_t spin_end = std::min(start + spin_nanos, end);
  int64_t now = start;
  bool crowded = false;
  do {
    const bool ready = Ready(0);
    const int64_t before = std::exchange(now, NowNanos());
    crowded = spin_nanos > 0 && now - before > kCrowdedNanos;
    if (ready) return crowded ? Waited::kCrowded : Waited::kFound;
    if (spin_nanos > 0) sched_yield();
  } while (now < spin_end && !crowded);
  const int64_t until = std::min(end, deadline_.load(std::memory_order_relaxed));
  if (until > now) Sleep(until - now);
  return crowded ? Waited::kCrowded : Waited::kSlept;
}

void Poller::Wake() {
  const std::lock_guard lock(mutex_);
  ++wakes_;
  owed_ = sleepers_;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t bytes = write(wake_.fd(), &one, sizeof(one));
}

void Poller::WakeBy(int64_t nanos) {
  if (nanos >= deadline_.load(std::memory_order_relaxed)) return;
  deadline_.store(nanos, std::memory_order_relaxed);
  // A thread that sleeps already reckons with a later time.
  Wake();
}

bool Poller::DeadlinePassed() {
  const int64_t deadline = deadline_.load(std::memory_order_relaxed);
  if (deadline == kNever || NowNanos() < deadline) return false;
  deadline_.store(kNever, std::memory_order_relaxed);
  return true;
}

}  // namespace tutti::net
