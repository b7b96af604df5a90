#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/poller.h"

namespace tutti::net {

// A thread that drives a Poller and calls back: when a descriptor is ready, when a time has come,
// when another thread posts a task. In one round descriptors come first and times last, so whoever
// judges by now() has seen all that had arrived before, also after the process itself was stopped.
//
// Post is thread-safe; everything else is called before Start, or on the thread.
class EventLoop {
 public:
  // `spin_nanos`: how long the loop polls for more events after one arrived, before it sleeps.
  // Polling is switched off after several unsuccessful rounds and tried again from time to time. So
  // fast request-reply traffic needs no wake-ups, and other traffic costs no core time.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(std::string thread_name,
                                                           int64_t spin_nanos = 0);
  ~EventLoop();

  // RESOURCE_EXHAUSTED where the system gives no thread; nothing runs then.
  absl::Status Start();
  // Runs `last` on the thread after the tasks posted so far, and joins it. Nothing is called after
  // that. Not from the thread itself. Where there is no thread the caller runs `last`.
  void Stop(std::function<void()> last = nullptr);

  void Post(std::function<void()> task);
  // `events` as for epoll (level-triggered). The id is never reused, so an event that was on its
  // way when its descriptor was forgotten reaches nobody.
  absl::StatusOr<uint64_t> Watch(int fd, uint32_t events, std::function<void(uint32_t)> handler);
  void Change(uint64_t id, uint32_t events);
  void Forget(uint64_t id);  // before the descriptor is closed
  void After(int64_t nanos, std::function<void()> task);
  // For whoever handles its events by itself (Door).
  Poller& poller() { return poller_; }
  // The time of this round: whatever had arrived by then has been handled when a timer runs.
  int64_t now() const { return now_; }

 private:
  struct Watched final : EventHandler {
    void OnEvents(uint32_t ready) override {
      if (!forgotten) handler(ready);
    }
    int fd = -1;
    uint32_t events = 0;
    std::function<void(uint32_t)> handler;
    bool forgotten = false;
  };

  EventLoop(std::string thread_name, int64_t spin_nanos)
      : thread_name_(std::move(thread_name)), spin_nanos_(spin_nanos) {}
  void Run();
  int64_t SpinNanos();
  void Learn(Poller::Waited waited, int64_t spun);
  void RunDueTimers();
  void RunTasks();

  const std::string thread_name_;
  const int64_t spin_nanos_;
  int misses_ = 0;  // times in a row that it looked in vain
  int rests_ = 0;   // rounds in which it does not look
  Poller poller_;
  std::unordered_map<uint64_t, std::unique_ptr<Watched>> watched_;
  std::vector<std::unique_ptr<Watched>> forgotten_;  // of which events may be on their way
  uint64_t next_id_ = 1;
  std::multimap<int64_t, std::function<void()>> timers_;
  int64_t now_ = 0;
  bool stopping_ = false;

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tutti::net
