// One loop over everything that can happen: output of a task, its end, a signal to this process, a
// deadline. The first task that fails is the cause; the others learn of it from each other and end
// by themselves, and whoever does not within the grace time is ended by force.
#include "tutti/launch/launcher.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/launch/job_guard.h"
#include "tutti/launch/job_output.h"
#include "tutti/launch/system_limits.h"
#include "tutti/launch/task_process.h"
#include "tutti/launch/wait_watch.h"

namespace tutti {
namespace {

constexpr int kUsage = 2;
constexpr int kPeerLost = 128;  // what a task exits with when another one was lost
constexpr int64_t kSecond = 1'000'000'000;
constexpr double kTerminateSeconds = 2;  // between SIGTERM and SIGKILL
constexpr int64_t kLookEvery = kSecond;  // at tasks that are waited for
constexpr int kPiece = 16 << 10;         // bytes of output taken at once

// Ports that nobody listens on, all different: each is held until all are found.
absl::StatusOr<std::vector<int>> FreePorts(int count) {
  std::vector<int> sockets, ports;
  absl::Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets.push_back(fd);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || ::bind(fd, any, size) != 0 || ::getsockname(fd, any, &size) != 0) {
      status = Unavailable("cannot find a free port on 127.0.0.1: {}", DescribeSystemError(errno));
    } else {
      ports.push_back(ntohs(address.sin_port));
    }
  }
  for (const int fd : sockets) {
    if (fd >= 0) ::close(fd);
  }
  if (!status.ok()) return status;
  return ports;
}

std::string RandomToken() {
  unsigned char bytes[16];
  if (::getentropy(bytes, sizeof(bytes)) != 0) return fmt::format("{}-{}", ::getpid(), NowNanos());
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

// `wanted` cores for each task, in turn where there are not enough; 0: an even share.
std::vector<int> CoresOf(const std::vector<int>& cores, int task, int tasks, int wanted) {
  if (wanted == 0 || cores.empty()) return ShareOfCores(cores, task, tasks);
  const auto count = int(cores.size());
  std::vector<int> share;
  for (int i = 0; i < std::min(wanted, count); ++i) {
    share.push_back(cores[size_t((task * wanted + i) % count)]);
  }
  return share;
}

std::string SignalName(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

class Job {
 public:
  Job(const LaunchOptions& options, std::vector<std::string> roles)
      : options_(options), roles_(roles), output_(std::move(roles), stdout, stderr) {}

  absl::Status Start(const std::vector<int>& ports) {
    if (!options_.log_dir.empty()) TUTTI_RETURN_IF_ERROR(output_.OpenLogs(options_.log_dir));
    ClusterSpec::Jobs jobs;
    for (int i = 0; i < options_.workers; ++i) {
      jobs["worker"][i] = fmt::format("127.0.0.1:{}", ports[size_t(i)]);
    }
    TUTTI_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Make(std::move(jobs)));
    TUTTI_ASSIGN_OR_RETURN(JobGuard guard, JobGuard::Start());
    guard_.emplace(std::move(guard));
    // What tasks started and left behind becomes a child of this process, so that it can be ended;
    // the guard, which was there before, does not.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string token = RandomToken();
    const std::vector<int> cores = NumbersOfUsableCores();
    for (int i = 0; i < options_.workers; ++i) {
      TaskCommand command;
      command.arguments = options_.command;
      command.environment = {{"TF_CONFIG", ToTfConfig({cluster, {"worker", i}, ""})},
                             {"TUTTI_JOB_TOKEN", token},
                             {"TUTTI_PROGRESS_FD", "3"}};
      command.cores = CoresOf(cores, i, options_.workers, options_.cores_per_worker);
      TUTTI_ASSIGN_OR_RETURN(TaskProcess process, TaskProcess::Start(command));
      guard_->Watch(process.pid());
      tasks_.push_back(std::move(process));
    }
    std::vector<WaitWatch::Task> watched;
    for (size_t i = 0; i < tasks_.size(); ++i) watched.push_back({roles_[i], tasks_[i].pid()});
    watch_.emplace(std::move(watched), options_.stopped_seconds);
    return absl::OkStatus();
  }

  int Run(int signals) {
    while (running() > 0) {
      PollOnce(signals);
      EndByForce();
      LookAtTasks();
    }
    for (size_t i = 0; i < tasks_.size(); ++i) output_.Flush(i);
    if (failed_ < 0) return 0;
    if (signal_ != 0) {
      output_.Say(fmt::format("tutti run: interrupted by {}", SignalName(signal_)));
    } else {
      TellCause();
    }
    return code_;
  }

 private:
  size_t running() const {
    return size_t(std::count_if(tasks_.begin(), tasks_.end(),
                                [](const TaskProcess& task) { return !task.reaped(); }));
  }

  void PollOnce(int signals) {
    struct Source {
      size_t task;
      int fd;
    };
    std::vector<pollfd> fds = {{.fd = signals, .events = POLLIN, .revents = 0}};
    std::vector<Source> sources = {{0, signals}};
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const TaskProcess& task = tasks_[i];
      for (const int fd : {task.out(), task.err(), task.progress()}) {
        if (fd < 0) continue;
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        sources.push_back({i, fd});
      }
      if (!task.reaped()) {
        fds.push_back({.fd = task.exited(), .events = POLLIN, .revents = 0});
        sources.push_back({i, task.exited()});
      }
    }
    if (::poll(fds.data(), nfds_t(fds.size()), Timeout()) <= 0) return;
    if (fds[0].revents != 0) TakeSignal(signals);
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      if (sources[i].fd == tasks_[sources[i].task].exited()) {
        TakeEnd(sources[i].task);
      } else {
        TakeOutput(sources[i].task, sources[i].fd);
      }
    }
  }

  int Timeout() const {
    const int64_t next = deadline_ == 0 ? next_look_ : std::min(deadline_, next_look_);
    return int(std::max<int64_t>(0, (next - NowNanos()) / 1'000'000) + 1);
  }

  void TakeOutput(size_t index, int fd) {
    TaskProcess& task = tasks_[index];
    char bytes[kPiece];
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      task.ClosePipe(fd);
    } else if (count > 0 && fd == task.progress()) {
      const std::string_view text(bytes, size_t(count));
      const size_t end = text.find_last_of('\n');
      if (end == std::string_view::npos) return;
      const size_t begin = text.substr(0, end).find_last_of('\n') + 1;
      output_.SetProgress(text.substr(begin, end - begin));
    } else if (count > 0) {
      output_.Take(index, fd == task.out() ? JobOutput::Stream::kOut : JobOutput::Stream::kErr,
                   {bytes, size_t(count)});
    }
  }

  void TakeEnd(size_t index) {
    TaskProcess& task = tasks_[index];
    const int code = task.Reap();
    guard_->Forget(task.pid());
    for (const int fd : {task.out(), task.err(), task.progress()}) TakeRest(index, fd);
    if (code == 0) return;
    if (failed_ < 0) StartDeadline(options_.grace_seconds);
    // A task that only lost a peer is not the cause, though its end may be seen first.
    if (failed_ < 0 || (code_ == kPeerLost && code != kPeerLost && !terminated_)) {
      failed_ = int(index);
      code_ = code;
    }
  }

  // What a task that ended left in a pipe: no more than is there at this moment, for what it
  // started may live outside its process group and write on.
  void TakeRest(size_t index, int fd) {
    int bytes = 0;
    if (fd < 0 || ::ioctl(fd, FIONREAD, &bytes) != 0) return;
    for (int taken = 0; taken < bytes; taken += kPiece) TakeOutput(index, fd);
  }

  void TakeSignal(int signals) {
    signalfd_siginfo info;
    if (::read(signals, &info, sizeof(info)) != ssize_t(sizeof(info))) return;
    if (failed_ < 0) signal_ = int(info.ssi_signo);
    for (const TaskProcess& task : tasks_) task.Signal(int(info.ssi_signo));
    if (deadline_ == 0) StartDeadline(options_.grace_seconds);
  }

  void StartDeadline(double seconds) {
    deadline_ = NowNanos() + int64_t(seconds * double(kSecond));
  }

  void EndByForce() {
    if (deadline_ == 0 || NowNanos() < deadline_) return;
    for (const TaskProcess& task : tasks_) task.Signal(terminated_ ? SIGKILL : SIGTERM);
    if (!terminated_) StartDeadline(kTerminateSeconds);
    terminated_ = true;
  }

  void LookAtTasks() {
    const int64_t now = NowNanos();
    if (now < next_look_) return;
    next_look_ = now + kLookEvery;
    if (deadline_ != 0) return;  // the end has begun, and has its own
    std::vector<TaskState> states;
    for (const TaskProcess& task : tasks_) {
      states.push_back(task.reaped()    ? TaskState::kEnded
                       : task.Stopped() ? TaskState::kStopped
                                        : TaskState::kRunning);
    }
    const WaitWatch::Finding finding = watch_->Look(states, now);
    for (const std::string& line : finding.lines) output_.Say("tutti run: " + line);
    for (const size_t task : finding.given_up) tasks_[task].Signal(SIGKILL);
  }

  void TellCause() {
    const TaskProcess& task = tasks_[size_t(failed_)];
    const std::string how = task.signal() != 0
                                ? fmt::format("was ended by {}", SignalName(task.signal()))
                                : fmt::format("exited with code {}", code_);
    output_.Say(fmt::format("tutti run: {} {}; its last lines:", roles_[size_t(failed_)], how));
    for (const std::string& line : output_.last_lines(size_t(failed_))) output_.Say("  " + line);
    if (!options_.log_dir.empty()) {
      output_.Say(fmt::format("tutti run: all it wrote is in {}", options_.log_dir));
    }
  }

  const LaunchOptions& options_;
  const std::vector<std::string> roles_;
  JobOutput output_;
  std::optional<JobGuard> guard_;
  std::vector<TaskProcess> tasks_;
  std::optional<WaitWatch> watch_;
  int64_t next_look_ = 0;
  int failed_ = -1;  // the first that did
  int code_ = 0;
  int signal_ = 0;  // that ended the job; 0: none
  int64_t deadline_ = 0;
  bool terminated_ = false;
};

// Signals that ask for an end come through a file from here on.
int CatchSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

int Launch(const LaunchOptions& options) {
  if (options.workers < 1 || options.command.empty()) {
    FormatTo(stderr, "tutti run: expected at least one worker and a program behind --\n");
    return kUsage;
  }
  const auto ports = FreePorts(options.workers);
  if (!ports.ok()) {
    FormatTo(stderr, "tutti run: {}\n", MessageOf(ports.status()));
    return 1;
  }
  std::vector<std::string> roles;
  for (int i = 0; i < options.workers; ++i) roles.push_back(fmt::format("worker {}", i));
  const int signals = CatchSignals();
  if (signals < 0) {
    FormatTo(stderr, "tutti run: cannot take signals (signalfd): {}\n", DescribeSystemError(errno));
    return 1;
  }
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away ends no job
  const std::set<pid_t> others = ChildrenOfThisProcess();
  Job job(options, std::move(roles));
  if (const absl::Status status = job.Start(*ports); !status.ok()) {
    FormatTo(stderr, "tutti run: {}\n", MessageOf(status));
    ::close(signals);
    return kUsage;
  }
  const int code = job.Run(signals);
  EndChildrenExcept(others);
  ::close(signals);
  if (const absl::Status status = FinishStdout(); !status.ok()) {
    FormatTo(stderr, "tutti run: {}\n", MessageOf(status));
    return code == 0 ? 1 : code;
  }
  return code;
}

}  // namespace tutti
