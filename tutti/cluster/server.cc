#include "tutti/cluster/server.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/awaited.h"
#include "tutti/base/cores.h"
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

int CoresPerDevice(const ServerOptions& options) {
  if (options.cores_per_device > 0) return options.cores_per_device;
  return std::max(1, UsableCores() / options.devices);
}

}  // namespace

Server::Server(const ServerOptions& options) {
  Check(options);
  task_ = fmt::format("/job:{}/task:{}", options.job, options.task);
  worker_ = std::make_shared<LocalWorker>(LocalWorkerOptions{.job = options.job,
                                                             .task = options.task,
                                                             .devices = options.devices,
                                                             .cores = CoresPerDevice(options),
                                                             .communicator = options.communicator});
}

Server::~Server() = default;

std::vector<DeviceInfo> Server::devices() const {
  Awaited<absl::StatusOr<std::vector<DeviceInfo>>> listed;
  worker_->ListDevices([&listed](auto devices) { listed.Set(std::move(devices)); });
  return ValueOrThrow(listed.Wait());
}

void Server::Reset(const std::string& container) { worker_->Reset(container); }

std::shared_ptr<Worker> Server::worker() const { return worker_; }

}  // namespace tutti
