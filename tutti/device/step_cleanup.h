#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

// Undo actions for what the nodes of one step have taken and a later node would release, such as a
// mutex. A step that fails never reaches that node, so the actions run at its end, when none of its
// nodes runs any more. Thread-safe.
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
