#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

// Threads for jobs that may wait: calls between tasks that compile, connect or need an answer.
// There are as many as jobs ever ran at once: one may wait for another, so it is never queued
// behind it. Thread-safe.
class LaneThreads {
 public:
  LaneThreads() = default;
  ~LaneThreads();  // waits for the jobs
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // Throws when no thread can be started; the job is not run then.
  void Post(std::function<void()> job);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  size_t idle_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti
