#include "tutti/launch/task_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/launch/remote_task.h"
#include "tutti/launch/system_limits.h"

namespace tutti {
namespace {

constexpr int kMostGenerations = 1000;

struct Pipe {
  int read = -1;
  int write = -1;

  absl::Status Open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      return ResourceExhausted("cannot make a pipe: {}", DescribeSystemError(errno));
    }
    read = ends[0];
    write = ends[1];
    return absl::OkStatus();
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  int TakeWrite() {
    ::fcntl(write, F_SETFL, ::fcntl(write, F_GETFL) | O_NONBLOCK);
    return std::exchange(write, -1);
  }
  int TakeRead() {
    ::fcntl(read, F_SETFL, ::fcntl(read, F_GETFL) | O_NONBLOCK);
    return std::exchange(read, -1);
  }
};

// All that the child needs, made before the fork: after it nothing may allocate.
struct ChildPlan {
  std::vector<std::string> environment_text;
  std::vector<char*> environment;
  std::vector<char*> arguments;
  cpu_set_t cores;
  bool pinned = false;
  int listening = -1;
  int input = -1;  // -1: nothing to read
  pid_t parent = 0;
};

ChildPlan PlanChild(const TaskCommand& command) {
  ChildPlan plan;
  const auto overridden = [&](const char* entry) {
    for (const auto& [name, value] : command.environment) {
      if (std::strncmp(entry, name.c_str(), name.size()) == 0 && entry[name.size()] == '=') {
        return true;
      }
    }
    return false;
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!overridden(*entry)) plan.environment_text.emplace_back(*entry);
  }
  for (const auto& [name, value] : command.environment) {
    plan.environment_text.push_back(name + "=" + value);
  }
  for (std::string& entry : plan.environment_text) plan.environment.push_back(entry.data());
  plan.environment.push_back(nullptr);
  for (const std::string& argument : command.arguments) {
    plan.arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  plan.arguments.push_back(nullptr);
  CPU_ZERO(&plan.cores);
  for (const int core : command.cores) CPU_SET(size_t(core), &plan.cores);
  plan.pinned = !command.cores.empty();
  plan.listening = command.listening;
  plan.parent = ::getpid();
  return plan;
}

[[noreturn]] void RunChild(const ChildPlan& plan, int out, int err, int progress, int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // it died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int input = plan.input >= 0 ? ::fcntl(plan.input, F_DUPFD_CLOEXEC, 10)
                                    : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  // Out of the way of the numbers they are about to get.
  const int high_out = ::fcntl(out, F_DUPFD_CLOEXEC, 10);
  const int high_err = ::fcntl(err, F_DUPFD_CLOEXEC, 10);
  const int high_progress = ::fcntl(progress, F_DUPFD_CLOEXEC, 10);
  const int high_failure = ::fcntl(failure, F_DUPFD_CLOEXEC, 10);
  const int high_listening = plan.listening < 0 ? -1 : ::fcntl(plan.listening, F_DUPFD_CLOEXEC, 10);
  ::dup2(input, STDIN_FILENO);
  ::dup2(high_out, STDOUT_FILENO);
  ::dup2(high_err, STDERR_FILENO);
  ::dup2(high_progress, kProgressFd);
  if (high_listening >= 0) ::dup2(high_listening, kListenFd);
  if (plan.pinned) ::sched_setaffinity(0, sizeof(plan.cores), &plan.cores);
  ::execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  const int error = errno;
  [[maybe_unused]] const auto told = ::write(high_failure, &error, sizeof(error));
  ::_exit(127);
}

absl::Status CannotRun(const std::string& program, int error) {
  const auto code = error == ENOENT   ? absl::StatusCode::kNotFound
                    : error == EACCES ? absl::StatusCode::kPermissionDenied
                                      : absl::StatusCode::kUnavailable;
  return MakeStatus(code, "cannot run {}: {}", program, DescribeSystemError(error));
}

}  // namespace

absl::StatusOr<TaskProcess> TaskProcess::Start(const TaskCommand& command) {
  Pipe out, err, progress, failure, control;
  for (Pipe* pipe : {&out, &err, &progress, &failure}) TUTTI_RETURN_IF_ERROR(pipe->Open());
  if (command.control) TUTTI_RETURN_IF_ERROR(control.Open());
  ChildPlan plan = PlanChild(command);
  plan.input = control.read;
  TaskProcess process;
  process.pid_ = ::fork();
  if (process.pid_ < 0) return ResourceExhausted("cannot fork: {}", DescribeSystemError(errno));
  if (process.pid_ == 0) RunChild(plan, out.write, err.write, progress.write, failure.write);
  ::setpgid(process.pid_, process.pid_);  // whoever comes first
  ::close(std::exchange(failure.write, -1));
  int error = 0;
  if (::read(failure.read, &error, sizeof(error)) == ssize_t(sizeof(error))) {
    return CannotRun(command.arguments[0], error);
  }
  process.pidfd_ = int(::syscall(SYS_pidfd_open, process.pid_, 0));
  if (process.pidfd_ < 0)
    return ResourceExhausted("cannot watch a process (pidfd_open): {}", DescribeSystemError(errno));
  process.out_ = out.TakeRead();
  process.err_ = err.TakeRead();
  process.progress_ = progress.TakeRead();
  if (command.control) process.control_ = control.TakeWrite();
  return process;
}

TaskProcess::TaskProcess(TaskProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      progress_(std::exchange(other.progress_, -1)),
      control_(std::exchange(other.control_, -1)),
      reaped_(other.reaped_),
      signal_(other.signal_) {}

TaskProcess::~TaskProcess() {
  if (pid_ > 0 && !reaped_) {
    Signal(SIGKILL);
    Reap();
  }
  for (const int fd : {pidfd_, out_, err_, progress_, control_}) {
    if (fd >= 0) ::close(fd);
  }
}

void TaskProcess::ClosePipe(int fd) {
  for (int* pipe : {&out_, &err_, &progress_}) {
    if (*pipe == fd) ::close(std::exchange(*pipe, -1));
  }
}

void TaskProcess::Signal(int number) const {
  if (pid_ <= 0 || reaped_) return;
  if (control_ >= 0 && number != SIGKILL && Tell(SignalLine(number))) return;
  ::kill(-pid_, number);
}

bool TaskProcess::Tell(std::string_view line) const {
  if (control_ < 0) return false;
  const std::string text = fmt::format("{}\n", line);
  // A line is less than a pipe takes at once, or all of it waits for the reader.
  size_t sent = 0;
  for (int patience = 100; sent < text.size() && patience > 0; --patience) {
    const ssize_t count = ::write(control_, text.data() + sent, text.size() - sent);
    if (count > 0) {
      sent += size_t(count);
    } else if (errno == EAGAIN && sent > 0) {
      pollfd out = {control_, POLLOUT, 0};
      ::poll(&out, 1, 100);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return sent == text.size();
}

int TaskProcess::Reap() {
  // What it started and left behind. Before the wait, which gives the number of the group free.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  if (WIFSIGNALED(status)) {
    signal_ = WTERMSIG(status);
    return 128 + signal_;
  }
  return WEXITSTATUS(status);
}

bool TaskProcess::Stopped() const {
  if (pid_ <= 0 || reaped_) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string text;
  std::getline(file, text);
  // "123 (name) T ...", where the name may hold anything.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'T';
}

std::set<pid_t> ChildrenOfThisProcess() {
  std::set<pid_t> children;
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::gettid()));
  for (pid_t child = 0; file >> child;) children.insert(child);
  return children;
}

void EndChildrenExcept(const std::set<pid_t>& others) {
  for (int round = 0; round < kMostGenerations; ++round) {
    bool any = false;
    for (const pid_t child : ChildrenOfThisProcess()) {
      if (others.contains(child)) continue;
      any = true;
      ::kill(child, SIGKILL);
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (!any) return;
  }
}

}  // namespace tutti
