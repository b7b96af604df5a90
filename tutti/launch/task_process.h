#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

// What to start.
struct TaskCommand {
  std::vector<std::string> arguments;                            // the program first
  std::vector<std::pair<std::string, std::string>> environment;  // on top of this process's
  std::vector<int> cores = {};                                   // to run on; empty: any
  int listening = -1;    // a descriptor that the task gets as kListenFd; -1: none
  bool control = false;  // it runs a task elsewhere, and takes lines (remote_task.h) on stdin
};

// The numbers of descriptors that a task has beside its standard files.
inline constexpr int kProgressFd = 3;  // it writes its progress there
inline constexpr int kListenFd = 4;    // it listens at the task's port (net/inherited_socket.h)

// A child process in a process group of its own, which dies with this one. Its output and its
// progress come through pipes. The destructor ends it by force and waits for it.
class TaskProcess {
 public:
  // NOT_FOUND or PERMISSION_DENIED when the program cannot be run.
  static absl::StatusOr<TaskProcess> Start(const TaskCommand& command);
  TaskProcess(TaskProcess&& other) noexcept;
  TaskProcess& operator=(TaskProcess&&) = delete;
  ~TaskProcess();

  pid_t pid() const { return pid_; }
  int exited() const { return pidfd_; }  // readable when the process has ended
  // Non-blocking pipes; -1 once closed.
  int out() const { return out_; }
  int err() const { return err_; }
  int progress() const { return progress_; }
  void ClosePipe(int fd);

  // To the process and all it started. One with `control` is told by a line, unless it is SIGKILL.
  void Signal(int number) const;
  // Sends a line to a process with `control`; false if it cannot take it at this moment.
  bool Tell(std::string_view line) const;
  // After exited() became readable: 0 to 255 of exit, or 128 + n of signal n. Ends what it left
  // behind in its process group.
  int Reap();
  bool reaped() const { return reaped_; }
  // Is it stopped by a signal (SIGSTOP), so that it neither runs nor ends?
  bool Stopped() const;
  int signal() const { return signal_; }  // that ended it, or 0

 private:
  TaskProcess() = default;

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_ = -1;
  int err_ = -1;
  int progress_ = -1;
  int control_ = -1;
  bool reaped_ = false;
  int signal_ = 0;
};

// Children of the calling thread's process that this thread started or, where the process is a
// child subreaper, that were left to it.
std::set<pid_t> ChildrenOfThisProcess();
// Ends all but these by force, and their children in turn when those are left to this process.
void EndChildrenExcept(const std::set<pid_t>& others);

}  // namespace tutti
