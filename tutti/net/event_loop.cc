#include "tutti/net/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(std::string thread_name) {
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(thread_name)));
  TUTTI_RETURN_IF_ERROR(loop->Open());
  return loop;
}

absl::Status EventLoop::Open() {
  epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  timer_ = Socket(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  bool opened = epoll_.valid() && wake_.valid() && timer_.valid();
  for (const int fd : {wake_.fd(), timer_.fd()}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    opened = opened && epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  if (opened) return absl::OkStatus();
  return ResourceExhausted("no event loop: {}; raise the limit of open files (ulimit -n)",
                           ErrnoText(errno));
}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Start() {
  TUTTI_CHECK(!thread_.joinable());
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void EventLoop::Stop(std::function<void()> last) {
  if (!thread_.joinable()) return;
  Post([this, last = std::move(last)] {
    if (last != nullptr) last();
    stopping_ = true;
  });
  thread_.join();
}

void EventLoop::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake anyhow.
  [[maybe_unused]] const ssize_t written = write(wake_.fd(), &one, sizeof(one));
}

absl::StatusOr<uint64_t> EventLoop::Watch(int fd, uint32_t events,
                                          std::function<void(uint32_t)> handler) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = next_id_;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ResourceExhausted("cannot watch a socket: {}", ErrnoText(errno));
  }
  watched_[next_id_] = {fd, events,
                        std::make_shared<std::function<void(uint32_t)>>(std::move(handler))};
  return next_id_++;
}

void EventLoop::Change(uint64_t id, uint32_t events) {
  const auto found = watched_.find(id);
  if (found == watched_.end() || found->second.events == events) return;
  found->second.events = events;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  TUTTI_CHECK(epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, found->second.fd, &event) == 0);
}

void EventLoop::Forget(uint64_t id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

void EventLoop::After(int64_t nanos, std::function<void()> task) {
  timers_.emplace(NowNanos() + std::max<int64_t>(nanos, 0), std::move(task));
}

void EventLoop::Run() {
  pthread_setname_np(pthread_self(), thread_name_.substr(0, 15).c_str());
  std::vector<epoll_event> events;
  while (!stopping_) {
    SetTimer();
    events.resize(watched_.size() + 2);  // all that can be ready fit into one round
    const int room = static_cast<int>(events.size());
    epoll_wait(epoll_.fd(), events.data(), room, -1);
    // What was just reported may be old: the process can be stopped at any point, here as well. So
    // the clock is read first, and all that had arrived by then is looked at before it counts.
    now_ = NowNanos();
    const int count = epoll_wait(epoll_.fd(), events.data(), room, 0);
    if (count < 0) continue;  // a signal; nothing was looked at
    for (int i = 0; i < count; ++i) {
      const auto found = watched_.find(events[static_cast<size_t>(i)].data.u64);
      if (found == watched_.end()) continue;
      const auto handler = found->second.handler;  // lives on if it forgets itself
      (*handler)(events[static_cast<size_t>(i)].events);
    }
    RunTasks();
    if (!stopping_) RunDueTimers();
  }
}

void EventLoop::SetTimer() {
  const int64_t earliest = timers_.empty() ? 0 : timers_.begin()->first;
  if (earliest == timer_set_for_) return;
  timer_set_for_ = earliest;
  itimerspec when = {};  // zero: never
  when.it_value.tv_sec = earliest / 1'000'000'000;
  when.it_value.tv_nsec = earliest % 1'000'000'000;
  timerfd_settime(timer_.fd(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void EventLoop::RunDueTimers() {
  uint64_t expirations = 0;
  // What it went off for may have come due after now_: then it has to go off again.
  if (read(timer_.fd(), &expirations, sizeof(expirations)) > 0) timer_set_for_ = kUnset;
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void EventLoop::RunTasks() {
  uint64_t posted = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.fd(), &posted, sizeof(posted));
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) {
    if (!stopping_) task();
  }
}

}  // namespace tutti::net
