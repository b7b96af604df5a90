#include "tutti/net/event_loop.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::net {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(std::string thread_name,
                                                             int64_t spin_nanos) {
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(thread_name), spin_nanos));
  TUTTI_RETURN_IF_ERROR(loop->poller_.Open());
  return loop;
}

EventLoop::~EventLoop() { Stop(); }

absl::Status EventLoop::Start() {
  TUTTI_CHECK(!thread_.joinable());
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<std::thread> thread =
      StartThread(fmt::format("the thread \"{}\"", thread_name_), [this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread.ok()) thread_ = *std::move(thread);
  return thread.status();
}

void EventLoop::Stop(std::function<void()> last) {
  if (!thread_.joinable()) {
    if (last != nullptr) last();
    return;
  }
  Post([this, last = std::move(last)] {
    if (last != nullptr) last();
    stopping_ = true;
  });
  thread_.join();
  // What they hold may hold the loop.
  timers_.clear();
  const std::lock_guard lock(mutex_);
  tasks_.clear();
}

void EventLoop::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  poller_.Wake();
}

absl::StatusOr<uint64_t> EventLoop::Watch(int fd, uint32_t events,
                                          std::function<void(uint32_t)> handler) {
  auto watched = std::make_unique<Watched>();
  watched->fd = fd;
  watched->events = events;
  watched->handler = std::move(handler);
  TUTTI_RETURN_IF_ERROR(poller_.Add(fd, events, watched.get()));
  watched_.emplace(next_id_, std::move(watched));
  return next_id_++;
}

void EventLoop::Change(uint64_t id, uint32_t events) {
  const auto found = watched_.find(id);
  if (found == watched_.end() || found->second->events == events) return;
  found->second->events = events;
  poller_.Change(found->second->fd, events, found->second.get());
}

void EventLoop::Forget(uint64_t id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  poller_.Remove(found->second->fd);
  found->second->forgotten = true;
  forgotten_.push_back(std::move(found->second));
  watched_.erase(found);
}

void EventLoop::After(int64_t nanos, std::function<void()> task) {
  timers_.emplace(NowNanos() + std::max<int64_t>(nanos, 0), std::move(task));
}

int64_t EventLoop::SpinNanos() {
  if (rests_ == 0) return spin_nanos_;
  --rests_;
  return 0;
}

void EventLoop::Learn(Poller::Waited waited, int64_t spun) {
  constexpr int kMisses = 4, kRests = 16, kLongRests = 64;
  if (spun == 0) return;
  misses_ = waited == Poller::Waited::kFound ? 0 : misses_ + 1;
  if (misses_ >= kMisses) rests_ = kRests;
  if (waited == Poller::Waited::kCrowded) rests_ = kLongRests;
}

void EventLoop::Run() {
  pthread_setname_np(pthread_self(), thread_name_.substr(0, 15).c_str());
  while (!stopping_) {
    int64_t pause = std::numeric_limits<int64_t>::max();
    if (!timers_.empty()) pause = std::max<int64_t>(timers_.begin()->first - NowNanos(), 0);
    const int64_t spin = SpinNanos();
    Learn(poller_.Wait(pause, spin), spin);
    // What woke it may be old: the process can be stopped at any point, here as well. So the clock
    // is read first, and all that had arrived by then is looked at before it counts.
    now_ = NowNanos();
    poller_.Dispatch();
    forgotten_.clear();
    RunTasks();
    if (!stopping_) RunDueTimers();
  }
}

void EventLoop::RunDueTimers() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void EventLoop::RunTasks() {
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
