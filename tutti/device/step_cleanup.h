#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

// What the nodes of one step have taken and a later node of it would give back: a step that fails
// never gets to that node, so it is undone at its end, when none of its nodes runs any more.
// Thread-safe.
class StepCleanup {
 public:
  // Calls `undo` should the step fail. It must not fail, and finds out for itself whether there is
  // anything left to undo.
  void IfStepFails(std::function<void()> undo) {
    std::lock_guard lock(mutex_);
    undos_.push_back(std::move(undo));
  }

  // Undoes everything, the last taken first. Called once, when the step has failed.
  void Undo() {
    std::vector<std::function<void()>> undos;
    {
      std::lock_guard lock(mutex_);
      undos.swap(undos_);
    }
    for (auto it = undos.rbegin(); it != undos.rend(); ++it) (*it)();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> undos_;
};

}  // namespace tutti
