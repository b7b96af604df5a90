#include "tutti/train/strategies/ps/join_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/task_status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/train/run_config.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/join.h"
#include "tutti/train/strategies/ps/end_of_training.h"

namespace tutti {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // for signals and lost tasks
constexpr double kLeastSeconds = 1;  // for the other workers, once the servers have been waited for

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Workers of one host share its cores.
int CoresOf(const TaskConfig& task) {
  const std::string host = HostOf(task.cluster.AddressOf(task.task));
  int beside = 0;
  for (const TaskId& trainer : task.cluster.Trainers()) {
    beside += HostOf(task.cluster.AddressOf(trainer)) == host ? 1 : 0;
  }
  return std::max(1, UsableCores() / std::max(1, beside));
}

std::shared_ptr<Server> StartServer(const Launch& launch, int cores) {
  const TaskConfig& task = *launch.task;
  return std::make_shared<Server>(ServerOptions{.job = task.task.job,
                                                .task = task.task.index,
                                                .cores_per_device = cores,
                                                .cluster = task.cluster.jobs(),
                                                .token = JobToken(),
                                                .insecure = launch.config.insecure,
                                                .start_seconds = launch.config.start_timeout,
                                                .stopped = StopRequested});
}

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

// Waits until all servers can be reached. A signal ends the wait, and so does the time.
void AwaitServers(const Server& server, const ClusterSpec& cluster, double seconds) {
  const auto late = Now() + std::chrono::duration<double>(seconds);
  for (const auto& [index, address] : cluster.jobs().at("ps")) {
    const std::string task = ToString(TaskId{"ps", index});
    for (;;) {
      const std::string error = server.StatusOf(task).error;
      if (error.empty()) break;
      if (StopRequested()) {
        throw Error(Code::kCancelled, fmt::format("stopped by signal {} while {} was waited for",
                                                  StopSignal(), task));
      }
      if (Now() > late) {
        throw Error(Code::kDeadlineExceeded,
                    fmt::format("{} did not appear within {} s: {}; was it started? "
                                "--start-timeout sets how long to wait",
                                task, seconds, error));
      }
    }
  }
}

std::string FirstDevice(const TaskId& task) { return ToString(task) + "/cpu:0"; }

std::vector<std::string> ServerDevices(const ClusterSpec& cluster) {
  std::vector<std::string> devices;
  const auto ps = cluster.jobs().find("ps");
  if (ps == cluster.jobs().end()) return devices;
  for (const auto& [index, address] : ps->second) devices.push_back(FirstDevice({"ps", index}));
  return devices;
}

}  // namespace

ParameterServers JoinServers(const Launch& launch, std::string_view strategy) {
  ParameterServers found;
  if (launch.task != nullptr) found.devices = ServerDevices(launch.task->cluster);
  RequireServers(found, strategy);
  const TaskConfig& task = *launch.task;
  found.workers = int(task.cluster.Trainers().size());
  found.rank = task.TrainerRank();
  const auto began = Now();
  const std::shared_ptr<Server> server = StartServer(launch, CoresOf(task));
  AwaitServers(*server, task.cluster, launch.config.start_timeout);
  const std::chrono::duration<double> waited = Now() - began;
  found.start_timeout = std::max(kLeastSeconds, launch.config.start_timeout - waited.count());
  found.connect = [server](SessionOptions& options) { options = {.server = server.get()}; };
  std::vector<std::string> trainers;
  for (const TaskId& trainer : task.cluster.Trainers()) trainers.push_back(ToString(trainer));
  found.look = [server, trainers](int rank) {
    const TaskStatus status = server->StatusOf(trainers[size_t(rank)]);
    return WorkerState{rank, status.task, status.incarnation, status.error};
  };
  return found;
}

void ServeVariables(const Launch& launch) {
  const TaskConfig& task = *launch.task;
  const std::shared_ptr<Server> server = StartServer(launch, 0);
  const std::vector<std::string> devices = ServerDevices(task.cluster);
  const size_t own =
      size_t(std::find(devices.begin(), devices.end(), FirstDevice(task.task)) - devices.begin());
  const EndOfTraining end(devices);
  SessionOptions options;
  options.server = server.get();
  Session session(end.graph(), options);
  // A signal, worker 0 that does not come in time, or its loss after it was there, ends the wait.
  std::stop_source stop;
  std::string lost;
  std::jthread watch([&](const std::stop_token& done) {
    const std::string chief = ToString(task.cluster.Chief());
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    uint64_t incarnation = 0;
    const auto late = std::chrono::steady_clock::now() +
                      std::chrono::duration<double>(launch.config.start_timeout);
    for (int64_t round = 0; !done.stop_requested() && !StopRequested(); ++round) {
      never.wait_for(lock, done, kLook, [] { return false; });
      if (round % 5 != 0) continue;
      const TaskStatus status = server->StatusOf(chief);
      if (status.error.empty() && incarnation == 0) incarnation = status.incarnation;
      if (incarnation == 0 && std::chrono::steady_clock::now() > late) {
        lost = fmt::format(
            "{} did not appear within {} s: {}; was it started? --start-timeout sets how long to "
            "wait",
            chief, launch.config.start_timeout, status.error);
        stop.request_stop();
        return;
      }
      if (incarnation == 0 || (status.error.empty() && status.incarnation == incarnation)) continue;
      lost = fmt::format("{} is lost: {}", chief,
                         status.error.empty() ? "it was started anew" : status.error);
      stop.request_stop();
      return;
    }
    stop.request_stop();
  });
  std::string failure;
  try {
    failure = end.Await(session, own, stop.get_token());
  } catch (const Error& error) {
    watch.request_stop();
    watch.join();
    if (StopRequested()) return;
    throw Error(Code::kUnavailable, lost.empty() ? error.what() : lost);
  }
  if (!failure.empty()) throw Error(Code::kUnavailable, failure);
}

std::vector<StrategyFlag> ServerFlags() {
  return {{.name = "wire",
           .initial = "as-is",
           .help = "how float32 gradients travel",
           .choices = {"as-is", "bfloat16", "float16"},
           .synonyms = {{"bf16", "bfloat16"}, {"fp16", "float16"}}},
          {.name = "split-bytes",
           .initial = "1048576",
           .help = "variables of more bytes are split over the parameter servers"},
          {.name = "bad-gradients",
           .initial = "stop",
           .help = "after a gradient that is not finite, which is never applied",
           .choices = {"stop", "skip"}}};
}

ServerOptionsOfStrategy ServerOptionsOf(const Launch& launch) {
  const int64_t bytes = WholeNumber(launch.flag("split-bytes"), 1);
  if (bytes < 0) {
    ThrowInvalidArgument(
        fmt::format("--split-bytes is \"{}\"; expected a number of bytes from 1 on",
                    launch.flag("split-bytes")));
  }
  return {.split_bytes = bytes,
          .wire = launch.flag("wire"),
          .skip_bad = launch.flag("bad-gradients") == "skip"};
}

}  // namespace tutti
