#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

enum class TaskState { kRunning, kStopped, kEnded };

// Reports which tasks a job waits for, so that it never waits silently. A task that is stopped
// (SIGSTOP) neither runs nor ends: warnings about it are repeated, and it is given up after a while
// if no other task can end the wait, because all have ended or are stopped too. A task that still
// runs after another has ended is reported at growing intervals. Not thread-safe.
class WaitWatch {
 public:
  // Tasks by role and process id.
  struct Task {
    std::string role;
    int64_t process = 0;
  };
  WaitWatch(std::vector<Task> tasks, double stopped_seconds);

  struct Finding {
    std::vector<std::string> lines;  // to be said
    std::vector<size_t> given_up;    // tasks to be ended by force
  };
  // To be called about once a second with the state of every task.
  Finding Look(std::span<const TaskState> states, int64_t now_nanos);

 private:
  struct Watched {
    int64_t stopped_since = 0;  // 0: it is not
    int64_t next_warning = 0;
    bool given_up = false;
  };
  void LookAtStopped(std::span<const TaskState> states, int64_t now, Finding& finding);
  void LookAtRunning(std::span<const TaskState> states, int64_t now, Finding& finding);

  const std::vector<Task> tasks_;
  const double stopped_seconds_;
  std::vector<Watched> watched_;
  int64_t first_end_ = 0;  // 0: all run
  int64_t next_told_ = 0;
};

}  // namespace tutti
