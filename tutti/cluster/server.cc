#include "tutti/cluster/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "tutti/base/awaited.h"
#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/device/device.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {
namespace {

// A device may use up to this many threads even if the process has fewer cores; they then share
// cores.
constexpr int kFewCores = 16;

void Check(const ServerOptions& options) {
  if (!IsJobName(options.job)) {
    ThrowInvalidArgument(fmt::format(
        "job \"{}\": expected a name of letters, digits, '_' and '-', such as \"worker\"",
        options.job));
  }
  if (options.task < 0) {
    ThrowInvalidArgument(
        fmt::format("task {} of job \"{}\": expected 0 or more", options.task, options.job));
  }
  if (options.devices < 1 || options.devices > 1024) {
    ThrowInvalidArgument(fmt::format("a task has 1 to 1024 devices, got {}", options.devices));
  }
  const int most_cores = std::max(UsableCores(), kFewCores);
  if (options.cores_per_device < 0 || options.cores_per_device > most_cores) {
    ThrowInvalidArgument(fmt::format(
        "cores_per_device is {}, and this process may use {} cores; expected 1 to {}, or 0 to "
        "divide all cores among the devices",
        options.cores_per_device, UsableCores(), most_cores));
  }
}

// What a device has, and whether lanes must share cores.
struct Division {
  int cores = 1;                         // of each device
  std::vector<std::vector<int>> pinned;  // by device; empty: the system chooses
  bool crowded = false;
};

// Several devices have cores of their own where there are enough. A single one takes what the
// system gives it: other tasks on this host may have one, too.
Division Divide(const ServerOptions& options) {
  Division division;
  const std::vector<int> usable = NumbersOfUsableCores();
  const int count = UsableCores();
  division.cores = options.cores_per_device > 0 ? options.cores_per_device
                                                : std::max(1, count / options.devices);
  const int wanted = division.cores * options.devices;
  division.crowded = wanted > count;
  static std::atomic<bool> told = false;
  if (division.crowded && !told.exchange(true)) {
    Log(LogLevel::kInfo,
        "{} device{} of {} core{} each share the {} core{} that this process may use",
        options.devices, options.devices == 1 ? "" : "s", division.cores,
        division.cores == 1 ? "" : "s", count, count == 1 ? "" : "s");
  }
  if (!division.crowded && options.devices > 1 && int(usable.size()) == count) {
    for (int i = 0; i < options.devices; ++i) {
      if (options.cores_per_device == 0) {
        division.pinned.push_back(ShareOfCores(usable, i, options.devices));
      } else {
        division.pinned.emplace_back(usable.begin() + i * division.cores,
                                     usable.begin() + (i + 1) * division.cores);
      }
    }
  }
  return division;
}

}  // namespace

Server::Server(const ServerOptions& options) {
  Check(options);
  task_ = fmt::format("/job:{}/task:{}", options.job, options.task);
  Division division = Divide(options);
  worker_ = std::make_shared<LocalWorker>(LocalWorkerOptions{.job = options.job,
                                                             .task = options.task,
                                                             .devices = options.devices,
                                                             .cores = division.cores,
                                                             .pinned = std::move(division.pinned),
                                                             .crowded = division.crowded,
                                                             .communicator = options.communicator});
}

Server::~Server() = default;

std::vector<DeviceInfo> Server::devices() const {
  Awaited<absl::StatusOr<std::vector<DeviceInfo>>> listed;
  worker_->ListDevices([&listed](auto devices) { listed.Set(std::move(devices)); });
  return ValueOrThrow(listed.Wait());
}

std::vector<DeviceStats> Server::stats() const { return worker_->stats(); }

void Server::Reset(const std::string& container) { worker_->Reset(container); }

std::shared_ptr<Worker> Server::worker() const { return worker_; }

}  // namespace tutti
