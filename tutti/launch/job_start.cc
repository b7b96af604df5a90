// How the tasks of a job come to be. Ports are bound by the launcher before any task is started, so
// that every task can be told all addresses, and handed to the tasks as open descriptors, so that
// nobody else can take them in between.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tutti/base/clock.h"
#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/launch/job.h"
#include "tutti/net/inherited_socket.h"
#include "tutti/net/token.h"

namespace tutti {
namespace {

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

// Those that train work at the same time, and so do the ps tasks, mostly while the others wait.
std::vector<int> CoresOf(const TaskId& task, const LaunchOptions& options) {
  const std::vector<int> cores = NumbersOfUsableCores();
  const RoleCounts& roles = options.roles;
  if (task.job == "evaluator") return cores;
  if (task.job == "ps") return ShareOfCores(cores, task.index, roles.ps);
  const int chiefs = roles.chief ? 1 : 0;
  const int rank = task.job == "chief" ? 0 : chiefs + task.index;
  return CoresOf(cores, rank, chiefs + roles.workers, options.cores_per_worker);
}

absl::StatusOr<net::Socket> ListenAt(const std::string& address) {
  TUTTI_ASSIGN_OR_RETURN(const net::Endpoint endpoint, net::ParseEndpoint(address));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<net::Address> addresses, net::Resolve(endpoint));
  return net::Listen(addresses.front());
}

}  // namespace

absl::Status Job::HoldPorts() {
  ClusterSpec::Jobs jobs;
  for (Task& task : tasks_) {
    if (!task.host.empty()) TUTTI_RETURN_IF_ERROR(StartAgent(task, /*port=*/0));
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = tasks_[i];
    std::string& address = jobs[task.id.job][task.id.index];
    if (!task.host.empty()) {
      TUTTI_ASSIGN_OR_RETURN(address, WaitForAgent(i));
      continue;
    }
    auto port = ListenAt("127.0.0.1:0");
    if (!port.ok()) return WithPrefix(port.status(), fmt::format("no port for {}: ", task.role));
    task.port = *std::move(port);
    TUTTI_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(task.port.fd()));
    address = net::ToString(bound);
  }
  TUTTI_ASSIGN_OR_RETURN(cluster_, ClusterSpec::MakeForTraining(std::move(jobs)));
  return absl::OkStatus();
}

std::vector<std::pair<std::string, std::string>> Job::EnvironmentOf(const Task& task) const {
  std::vector<std::pair<std::string, std::string>> environment = {
      {"TF_CONFIG", ToTfConfig({cluster_, task.id, ""})},
      {"TUTTI_LAUNCH", "tf-config"},  // whatever started the launcher
      {"TUTTI_JOB_TOKEN", token_}};
  if (options_.devices > 0) {
    environment.emplace_back("TUTTI_DEVICES", fmt::format("{}", options_.devices));
  }
  return environment;
}

absl::Status Job::StartTask(size_t index) {
  return tasks_[index].host.empty() ? StartHere(tasks_[index]) : StartThere(index);
}

absl::Status Job::StartHere(Task& task) {
  if (!task.port.valid()) {
    // A task that is started again gets the address that the others know.
    TUTTI_ASSIGN_OR_RETURN(task.port, ListenAt(cluster_.AddressOf(task.id)));
  }
  TaskCommand command;
  command.arguments = options_.command;
  command.environment = EnvironmentOf(task);
  command.environment.emplace_back("TUTTI_PROGRESS_FD", fmt::format("{}", kProgressFd));
  command.environment.emplace_back(net::kInheritedSocket, fmt::format("{}", kListenFd));
  command.cores = CoresOf(task.id, options_);
  command.listening = task.port.fd();
  TUTTI_ASSIGN_OR_RETURN(TaskProcess process, TaskProcess::Start(command));
  // Only the task holds the port from here on: when it dies, connections to it are refused.
  task.port.Close();
  guard_->Watch(process.pid());
  task.process.reset();
  task.process.emplace(std::move(process));
  task.started = NowNanos();
  task.waits_for_others = task.has_others = task.ended_well = false;
  return absl::OkStatus();
}

absl::Status Job::StartAll() {
  TUTTI_RETURN_IF_ERROR(HoldPorts());
  for (size_t i = 0; i < tasks_.size(); ++i) TUTTI_RETURN_IF_ERROR(StartTask(i));
  Watch();
  return absl::OkStatus();
}

absl::Status Job::Start(int signals) {
  signals_ = signals;
  TUTTI_RETURN_IF_ERROR(AssignTasks());
  if (!options_.log_dir.empty()) TUTTI_RETURN_IF_ERROR(output_.OpenLogs(options_.log_dir));
  const char* const token = std::getenv("TUTTI_JOB_TOKEN");
  token_ = token == nullptr || *token == '\0' ? net::MakeToken() : token;
  TUTTI_ASSIGN_OR_RETURN(JobGuard guard, JobGuard::Start());
  guard_.emplace(std::move(guard));
  // What tasks started and left behind becomes a child of this process, so that it can be ended;
  // the guard, which was there before, does not.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  return StartAll();
}

absl::Status Job::StartAgain(const std::vector<size_t>& tasks) {
  for (const size_t task : tasks) TUTTI_RETURN_IF_ERROR(StartTask(task));
  Watch();
  return absl::OkStatus();
}

void Job::Watch() {
  std::vector<WaitWatch::Task> watched;
  for (const Task& task : tasks_) watched.push_back({task.role, task.process->pid()});
  watch_.emplace(std::move(watched), options_.stopped_seconds);
}

}  // namespace tutti
