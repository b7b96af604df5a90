#include "tutti/launch/host_agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/launch/job_guard.h"
#include "tutti/launch/remote_task.h"
#include "tutti/launch/task_process.h"
#include "tutti/net/inherited_socket.h"

namespace tutti {
namespace {

constexpr int kCannotStart = 2;
constexpr int kLauncherLost = 128 + SIGHUP;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTerminate = 2 * kSecond;  // between SIGTERM and SIGKILL
constexpr int kLook = 500;                   // milliseconds
constexpr size_t kLongestLine = 1 << 20;

// The address by which ssh reached this host.
std::string OwnHost() {
  const char* const connection = std::getenv("SSH_CONNECTION");
  std::istringstream words(connection == nullptr ? "" : connection);
  std::string client, port, server;
  words >> client >> port >> server;
  return server.empty() ? "127.0.0.1" : server;
}

// Lines that come from stdin.
class Commands {
 public:
  bool open() const { return open_; }
  int64_t last() const { return last_; }  // when something came

  // What is there at this moment; waits for a little while where nothing is.
  void Read() {
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) open_ = false;
    if (count <= 0) return;
    pending_.append(bytes, size_t(count));
    last_ = NowNanos();
    if (pending_.size() > kLongestLine && pending_.find('\n') == std::string::npos) open_ = false;
  }
  std::optional<std::string> Next() {
    const size_t end = pending_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
  }

 private:
  std::string pending_;
  bool open_ = true;
  int64_t last_ = NowNanos();
};

class Agent {
 public:
  absl::Status Listen(int port) {
    TUTTI_ASSIGN_OR_RETURN(const std::vector<net::Address> addresses,
                           net::Resolve({OwnHost(), uint16_t(port)}));
    TUTTI_ASSIGN_OR_RETURN(port_, net::Listen(addresses.front()));
    TUTTI_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(port_.fd()));
    WriteTo(stdout, AgentHello(net::ToString(bound)) + "\n");
    return absl::OkStatus();
  }

  absl::Status Start() {
    std::optional<std::string> line;
    while (!(line = commands_.Next())) {
      if (!WaitForLauncher()) return Unavailable("the launcher went away before it sent a command");
    }
    TUTTI_ASSIGN_OR_RETURN(const RemoteCommand remote, RemoteCommandFromLine(*line));
    if (::chdir(remote.folder.c_str()) != 0) {
      return InvalidArgument("the folder {} cannot be entered on this host: {}", remote.folder,
                             net::ErrnoText(errno));
    }
    TUTTI_ASSIGN_OR_RETURN(JobGuard guard, JobGuard::Start());
    guard_.emplace(std::move(guard));
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    TaskCommand command;
    command.arguments = remote.arguments;
    command.environment = remote.environment;
    command.environment.emplace_back("TUTTI_PROGRESS_FD", fmt::format("{}", kProgressFd));
    command.environment.emplace_back(net::kInheritedSocket, fmt::format("{}", kListenFd));
    command.listening = port_.fd();
    if (remote.sharers > 0) {
      command.cores = ShareOfCores(NumbersOfUsableCores(), remote.sharer, remote.sharers);
    }
    TUTTI_ASSIGN_OR_RETURN(TaskProcess task, TaskProcess::Start(command));
    port_.Close();
    guard_->Watch(task.pid());
    task_.emplace(std::move(task));
    return absl::OkStatus();
  }

  // Until the task has ended.
  int Run() {
    while (true) {
      pollfd fds[] = {{commands_.open() ? STDIN_FILENO : -1, POLLIN, 0},
                      {task_->out(), POLLIN, 0},
                      {task_->err(), POLLIN, 0},
                      {task_->exited(), POLLIN, 0},
                      {task_->progress(), POLLIN, 0}};
      ::poll(fds, std::size(fds), kLook);
      if (fds[1].revents != 0) PassOn(task_->out(), stdout);
      if (fds[2].revents != 0) PassOn(task_->err(), stderr);
      if (fds[4].revents != 0) TakeLinesForLauncher();
      if (fds[3].revents != 0) return End();
      if (fds[0].revents != 0) commands_.Read();
      while (const auto line = commands_.Next()) {
        if (const int number = SignalFromLine(*line); number != 0) task_->Signal(number);
      }
      LookForLauncher();
    }
  }

 private:
  // False when it is gone.
  bool WaitForLauncher() {
    pollfd in = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&in, 1, kLook) > 0) commands_.Read();
    return commands_.open() && NowNanos() - commands_.last() < 60 * kSecond;
  }

  void PassOn(int fd, std::FILE* to) {
    char bytes[16 << 10];
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return task_->ClosePipe(fd);
    if (count > 0 && !WriteTo(to, {bytes, size_t(count)})) broken_ = true;
    if (count > 0 && to == stdout) {
      line_begins_ = bytes[count - 1] == '\n';
      SendLinesForLauncher();
    }
  }

  void TakeLinesForLauncher() {
    const int fd = task_->progress();
    char bytes[16 << 10];
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return task_->ClosePipe(fd);
    if (count > 0) for_launcher_.append(bytes, size_t(count));
    SendLinesForLauncher();
  }

  // Whole lines, where none of the task's output has begun.
  void SendLinesForLauncher() {
    while (line_begins_) {
      const size_t end = for_launcher_.find('\n');
      if (end == std::string::npos) return;
      if (!WriteTo(stdout, kForLauncher + for_launcher_.substr(0, end + 1))) broken_ = true;
      for_launcher_.erase(0, end + 1);
    }
    if (for_launcher_.size() > kLongestLine) for_launcher_.clear();  // a line that never ends
  }

  void LookForLauncher() {
    const int64_t now = NowNanos();
    const bool silent = now - commands_.last() > int64_t(kAliveSeconds * double(kSecond));
    if (commands_.open() && !silent && !broken_) return;
    if (terminated_ == 0) {
      terminated_ = now;
      task_->Signal(SIGTERM);
    } else if (now - terminated_ > kTerminate) {
      task_->Signal(SIGKILL);
    }
  }

  int End() {
    const int code = task_->Reap();
    guard_->Forget(task_->pid());
    for (const auto& [fd, to] : {std::pair(task_->out(), stdout), {task_->err(), stderr}}) {
      pollfd rest = {fd, POLLIN, 0};
      // What is there, and no more: what the task started may live on elsewhere and write.
      for (int i = 0; i < 64 && fd >= 0 && ::poll(&rest, 1, 0) > 0; ++i) {
        if ((rest.revents & POLLIN) == 0) break;
        PassOn(fd, to);
        if (fd != task_->out() && fd != task_->err()) break;
      }
    }
    EndChildrenExcept({});
    return terminated_ != 0 ? kLauncherLost : code;
  }

  Commands commands_;
  net::Socket port_;
  std::optional<JobGuard> guard_;
  std::optional<TaskProcess> task_;
  int64_t terminated_ = 0;    // when; 0: not
  bool broken_ = false;       // nobody takes what the task writes
  bool line_begins_ = true;   // on stdout
  std::string for_launcher_;  // what the task wrote for it, not yet sent
};

}  // namespace

int RunHostAgent(int port) {
  ::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGHUP, SIGQUIT, SIGTERM}) ::signal(number, SIG_IGN);
  Agent agent;
  absl::Status status = agent.Listen(port);
  if (status.ok()) status = agent.Start();
  if (!status.ok()) {
    FormatTo(stderr, "tutti host-agent: {}\n", MessageOf(status));
    return kCannotStart;
  }
  return agent.Run();
}

}  // namespace tutti
