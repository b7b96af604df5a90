#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// What a step that was ended from outside (out of time, session closed) left undone, so that its
// message can tell what held it up. Thread-safe.
class UnfinishedNodes {
 public:
  // The step ends because of a failure of its own, whose message tells all there is to tell.
  void StepFailed();

  // A node that was not done, and why: `waits for Mutex "m", which token 3 holds`.
  void Add(std::string node, std::string why);

  // "; not done: Dequeue "d" on /cpu:0 (waits for ...), ... and 3 more"; "" when there is nothing.
  std::string ToString() const;

 private:
  static constexpr size_t kMostListed = 4;

  mutable std::mutex mutex_;
  bool failed_ = false;
  size_t count_ = 0;
  std::vector<std::string> first_;
};

}  // namespace tutti
