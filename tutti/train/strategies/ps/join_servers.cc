#include "tutti/train/strategies/ps/join_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/share_of_host.h"
#include "tutti/cluster/task_status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/run_config.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/join.h"

namespace tutti {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // for signals
// After a signal: when to tell first that the chief is waited for, how often to tell it again, and
// when to give up. Launchers kill sooner; the last is for a chief that is alive and does not stop.
constexpr auto kTellAfter = std::chrono::seconds(1);
constexpr auto kTellEvery = std::chrono::seconds(5);
constexpr auto kMostGrace = std::chrono::minutes(5);
constexpr double kLeastSeconds = 1;  // for the other workers, once the servers have been waited for

// Workers of one host share its cores: a server mostly works while they wait. A server that nobody
// has given cores of its own takes the share of one task of all (Server): a team on every core
// would wait for threads of it that wait for a worker's (half the steps a second with one server
// and two workers on two cores, model mlp-small of compare-ps).
int CoresOfWorker(const TaskConfig& task) {
  std::vector<std::string> addresses;
  for (const TaskId& trainer : task.cluster.Trainers()) {
    addresses.push_back(task.cluster.AddressOf(trainer));
  }
  return ShareOfHost(CountHostCores(), CountOfHost(addresses, task.cluster.AddressOf(task.task)));
}

// The store of the job's members is in the first worker, unless --coordinator says otherwise. A
// server ends with the first worker, and reports workers whose connections break: they need it.
std::shared_ptr<Server> StartServer(const Launch& launch, int cores) {
  const TaskConfig& task = *launch.task;
  const std::string chief = ToString(task.cluster.Chief());
  const std::string& coordinator = launch.flag("coordinator");
  const bool serves = task.task.job == "ps";
  auto server = std::make_shared<Server>(
      ServerOptions{.job = task.task.job,
                    .task = task.task.index,
                    .cores_per_device = cores,
                    .cluster = task.cluster.jobs(),
                    .token = JobToken(),
                    .insecure = launch.config.insecure,
                    .coordinator = coordinator.empty() ? chief : coordinator,
                    .leader = chief,
                    .reports_lost = serves,
                    .start_seconds = launch.config.start_timeout,
                    .stopped = StopRequested});
  if (launch.config.metrics != nullptr) server->AddMetrics(*launch.config.metrics);
  return server;
}

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

// The revision of the task's process if that answers, else 0. Of one that died before this task
// came the store may still have the place.
int64_t RevisionOf(const Server& server, const net::Membership& membership,
                   const std::string& task) {
  const net::Membership::View view = membership.ViewOf(task);
  if (view.incarnation == 0 || !view.gone.ok()) return 0;
  const TaskStatus status = server.StatusOf(task);
  return status.error.empty() && status.incarnation == view.incarnation ? view.revision : 0;
}

// Waits until the task is there, and gives its revision. A signal ends the wait, and so do the
// failure of any task, and the time.
int64_t AwaitTask(Server& server, const net::Membership& membership, const std::string& task,
                  const Launch& launch, std::chrono::steady_clock::time_point began) {
  const double seconds = launch.config.start_timeout;
  while (true) {
    if (const int64_t revision = RevisionOf(server, membership, task)) return revision;
    if (StopRequested()) {
      throw Error(Code::kCancelled,
                  fmt::format("stopped by signal {} while {} was waited for", StopSignal(), task));
    }
    if (Now() > began + std::chrono::duration<double>(seconds)) {
      const absl::Status gone = membership.ViewOf(task).gone;
      throw Error(Code::kDeadlineExceeded,
                  fmt::format("{} did not appear within {} s: it {}; was it started? "
                              "--start-timeout sets how long to wait",
                              task, seconds, gone.ok() ? "has not come" : MessageOf(gone)));
    }
    if (server.JoinFor(kLook)) {
      throw Error(Code::kUnavailable, fmt::format("the job ended while {} was waited for", task));
    }
  }
}

// Workers need a server for the step that they are in and for its checkpoint, and a launcher
// signals all tasks at once. So a server serves on after a signal until the chief has left, and
// asks the job to stop: the signal may have come to this task alone. A second one ends the process.
class GraceAfterSignal {
 public:
  GraceAfterSignal(net::Membership& membership, const std::string& chief)
      : membership_(membership), chief_(chief) {}

  // Has a signal come, and the chief been waited for as long as it may take?
  bool IsOver() {
    if (!StopRequested()) return false;
    if (!since_) {
      since_ = Now();
      tell_ = *since_ + kTellAfter;
      membership_.AskToStop(StopSignal());
    }
    const bool over = Now() > *since_ + kMostGrace;
    if (!over && Now() < tell_) return false;
    tell_ = Now() + kTellEvery;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Now() - *since_);
    Log(LogLevel::kWarning, "signal {}: {} has not ended after {} s; {}", StopSignal(), chief_,
        waited.count(),
        over ? "this server ends without it"
             : "this server serves it until it has, and ends at once at another signal");
    return over;
  }

 private:
  net::Membership& membership_;
  const std::string chief_;
  std::optional<std::chrono::steady_clock::time_point> since_;  // the signal
  std::chrono::steady_clock::time_point tell_;
};

TaskLoad LoadOf(const TaskStatus& status) {
  return {.task = status.task,
          .nanos = status.uptime_nanos,
          .busy_nanos = status.busy_nanos,
          .requests = status.requests,
          .bytes_received = int64_t(status.bytes_received),
          .bytes_sent = int64_t(status.bytes_sent),
          .lock_nanos = status.lock_nanos,
          .cloned_bytes = status.cloned_bytes};
}

std::string FirstDevice(const TaskId& task) { return ToString(task) + "/cpu:0"; }

std::vector<TaskId> ServersOf(const ClusterSpec& cluster) {
  std::vector<TaskId> servers;
  const auto ps = cluster.jobs().find("ps");
  if (ps == cluster.jobs().end()) return servers;
  for (const auto& [index, address] : ps->second) servers.push_back({"ps", index});
  return servers;
}

}  // namespace

ParameterServers JoinServers(const Launch& launch, std::string_view strategy) {
  ParameterServers found;
  if (launch.task != nullptr) {
    for (const TaskId& server : ServersOf(launch.task->cluster)) {
      found.devices.push_back(FirstDevice(server));
      found.server_tasks.push_back(ToString(server));
    }
  }
  RequireServers(found, strategy);
  const TaskConfig& task = *launch.task;
  found.workers = int(task.cluster.Trainers().size());
  found.rank = task.TrainerRank();
  for (const TaskId& trainer : task.cluster.Trainers()) {
    found.worker_tasks.push_back(ToString(trainer));
  }
  const auto began = Now();
  const std::shared_ptr<Server> server = StartServer(launch, CoresOfWorker(task));
  found.membership = server->membership();
  try {
    for (const std::string& ps : found.server_tasks) {
      AwaitTask(*server, *found.membership, ps, launch, began);
    }
  } catch (const Error& error) {
    found.membership->Fail(absl::Status(absl::StatusCode(error.code()), error.what()));
    throw;
  }
  const std::chrono::duration<double> waited = Now() - began;
  found.start_timeout = std::max(kLeastSeconds, launch.config.start_timeout - waited.count());
  found.connect = [server](SessionOptions& options) { options = {.server = server.get()}; };
  found.load = [server, tasks = found.server_tasks](int number) {
    return LoadOf(server->StatusOf(number < 0 ? server->task() : tasks[size_t(number)]));
  };
  return found;
}

void ServeVariables(const Launch& launch) {
  const std::string chief = ToString(launch.task->cluster.Chief());
  const std::shared_ptr<Server> server = StartServer(launch, 0);
  try {
    const std::shared_ptr<net::Membership> membership = server->membership();
    const int64_t revision = AwaitTask(*server, *membership, chief, launch, Now());
    GraceAfterSignal grace(*membership, chief);
    while (!server->JoinFor(kLook) && !grace.IsOver()) {
      const net::Membership::View view = membership->ViewOf(chief);
      if (view.revision == revision && (view.gone.ok() || absl::IsCancelled(view.gone))) continue;
      throw Error(Code::kUnavailable,
                  fmt::format("{} {}", chief,
                              view.revision == revision ? MessageOf(view.gone)
                                                        : "is lost: it was started anew"));
    }
  } catch (const Error& error) {
    // Whatever it was, another start may succeed.
    if (!StopRequested()) throw Error(Code::kUnavailable, error.what());
    Log(LogLevel::kWarning, "{}", error.what());
  }
}

std::vector<StrategyFlag> ServerFlags() {
  return {
      {.name = "wire",
       .initial = "as-is",
       .help = "how float32 gradients travel",
       .choices = {"as-is", "bfloat16", "float16"},
       .synonyms = {{"bf16", "bfloat16"}, {"fp16", "float16"}}},
      {.name = "split-bytes",
       .initial = "1048576",
       .help = "variables of more bytes are split over the parameter servers"},
      {.name = "ps-memory",
       .initial = "",
       .help = "what variables and optimizer slots may take on each parameter server: 2GB; any "
               "number of bytes if it is empty"},
      {.name = "coordinator",
       .initial = "",
       .help = "where the list of members is kept: in a task, /job:ps/task:0, whose end ends the "
               "job, or etcd://host:2379,host:2379/JOB; in the first worker if it is empty"},
      {.name = "bad-gradients",
       .initial = "stop",
       .help = "what to do after a gradient that is not finite, which is never applied",
       .choices = {"stop", "skip"}}};
}

ServerOptionsOfStrategy ServerOptionsOf(const Launch& launch) {
  const int64_t bytes = WholeNumber(launch.flag("split-bytes"), 1);
  if (bytes < 0) {
    ThrowInvalidArgument(
        fmt::format("--split-bytes is \"{}\"; expected a number of bytes from 1 on",
                    launch.flag("split-bytes")));
  }
  const std::string& memory = launch.flag("ps-memory");
  const auto limit = memory.empty() ? absl::StatusOr<int64_t>(0) : topology::ParseBytes(memory);
  if (!limit.ok() || (*limit == 0 && !memory.empty())) {
    ThrowInvalidArgument(
        fmt::format("--ps-memory is \"{}\"; expected a number of bytes, as 512MiB", memory));
  }
  return {.split_bytes = bytes,
          .memory = *limit,
          .wire = launch.flag("wire"),
          .skip_bad = launch.flag("bad-gradients") == "skip"};
}

}  // namespace tutti
