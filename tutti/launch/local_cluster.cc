#include "tutti/launch/local_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/net/address.h"

namespace tutti {
namespace {

// A socket that is bound to a port of loopback and does not listen: while it is open the system
// gives the port to nobody else, but a task that reuses the address can listen there. When no task
// does, who connects is refused.
net::Socket HoldPort() {
  net::Socket held(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (setsockopt(held.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(held.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw Error(Code::kResourceExhausted, "no free port on loopback: " + net::ErrnoText(errno));
  }
  return held;
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {
  char folder[] = "/tmp/tutti_cluster_XXXXXX";
  if (mkdtemp(folder) == nullptr) throw Error(Code::kUnavailable, "cannot make a folder in /tmp");
  folder_ = folder;
  std::ofstream file(folder_ + "/cluster.toml");
  file << "[cluster]\n";
  for (const auto& [job, count] : options_.jobs) {
    file << job << " = [";
    for (int i = 0; i < count; ++i) {
      held_.push_back(HoldPort());
      const std::string address = net::ToString(ValueOrThrow(net::LocalAddress(held_.back().fd())));
      jobs_[job][i] = address;
      file << (i > 0 ? ", " : "") << '"' << address << '"';
      if (job != options_.not_started) tasks_[fmt::format("/job:{}/task:{}", job, i)] = {job, i};
    }
    file << "]\n";
  }
  file.close();
  for (auto& [name, task] : tasks_) Spawn(task);
  for (auto& [name, task] : tasks_) AwaitListening(name, task);
}

LocalCluster::~LocalCluster() {
  for (const auto& [name, task] : tasks_) Signal(name, SIGKILL);
  for (auto& [name, task] : tasks_) Reap(task);
  unlink((folder_ + "/cluster.toml").c_str());
  rmdir(folder_.c_str());
}

std::string LocalCluster::target(const std::string& task) const {
  const Task& named = tasks_.at(task);
  return "tutti://" + jobs_.at(named.job).at(named.index);
}

void LocalCluster::Spawn(Task& task) {
  std::vector<std::string> words = {options_.program,  "server",
                                    "--config",        folder_ + "/cluster.toml",
                                    "--job",           task.job,
                                    "--task",          std::to_string(task.index),
                                    "--devices",       std::to_string(options_.devices),
                                    "--start-seconds", std::to_string(options_.start_seconds)};
  if (options_.cores > 0) {
    words.emplace_back("--cores");
    words.push_back(std::to_string(options_.cores));
  }
  if (!options_.coordinator.empty()) {
    words.emplace_back("--coordinator");
    words.push_back(options_.coordinator);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(Code::kResourceExhausted, "no pipe");
  task.output = ends[0];
  task.pid = fork();
  if (task.pid == 0) {  // only what is safe after a fork
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execv(options_.program.c_str(), arguments.data());
    _exit(127);
  }
  close(ends[1]);
  if (task.pid < 0) throw Error(Code::kResourceExhausted, "no process");
}

void LocalCluster::AwaitListening(const std::string& name, Task& task) {
  std::string line;
  for (char c = 0; c != '\n' && read(task.output, &c, 1) == 1;) line += c;
  if (line.find("listens at") != std::string::npos) return;
  throw Error(Code::kUnavailable, fmt::format("{} did not start; it said \"{}\"", name, line));
}

void LocalCluster::Start(const std::string& task) {
  Spawn(tasks_.at(task));
  AwaitListening(task, tasks_.at(task));
}

void LocalCluster::Signal(const std::string& task, int signal) {
  const pid_t pid = tasks_.at(task).pid;
  if (pid <= 0) return;
  kill(pid, signal);
  // A stop takes effect a moment later.
  siginfo_t stopped;
  if (signal == SIGSTOP) waitid(P_PID, id_t(pid), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

int LocalCluster::Reap(Task& task) {
  if (task.pid <= 0) return -1;
  int status = 0;
  while (waitpid(task.pid, &status, 0) < 0 && errno == EINTR) {
  }
  task.pid = -1;
  close(task.output);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void LocalCluster::Kill(const std::string& task) {
  Signal(task, SIGKILL);
  Reap(tasks_.at(task));
}

int LocalCluster::Wait(const std::string& task) { return Reap(tasks_.at(task)); }

int LocalCluster::Terminate(const std::string& task) {
  Signal(task, SIGTERM);
  return Reap(tasks_.at(task));
}

}  // namespace tutti
