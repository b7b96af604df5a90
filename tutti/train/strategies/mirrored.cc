// In-graph replication: one client and one session, whose graph has the model N times. Each tower
// is on a device of its own and computes on its part of the batch; all read the parameters of the
// first device.
//
//   batch [2n]  -> rows [0, n)   -> tower 0 on cpu:0 -> loss x n / 2n -+
//               -> rows [n, 2n)  -> tower 1 on cpu:1 -> loss x n / 2n -+-> loss of the batch
//
// The loss of the batch is the weighted mean of the towers' (estimator/training_graph.cc).
// Differentiating it gives each tower's part of a gradient on that tower's device; the parts are
// added beside the variable, in the order of towers, and applied once. So nothing here adds nodes,
// and the result is that of `local` with the whole batch, but for the order of sums. BatchNorm
// normalises each tower's part by itself.
//
// A step moves (N - 1) copies of the parameters out and of the gradients back. Between devices of
// one process these are references, and the sum of gradients is what is left: N passes over them.
//
// With --target the session is that of a task of a running cluster, and the towers are on devices
// of its tasks: those of the target's own task first, so that parameters are there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/cluster/target.h"
#include "tutti/train/run_config.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

constexpr int64_t kMostDevices = 1024;  // of a task

class MirroredStrategy final : public Strategy {
 public:
  // `target` is that of the session; empty: the devices are those of this process.
  MirroredStrategy(std::vector<std::string> devices, std::string target)
      : devices_(std::move(devices)), target_(std::move(target)) {}

  std::string_view name() const override { return "mirrored"; }
  std::vector<std::string> Devices() const override { return devices_; }
  void Configure(SessionOptions& options) const override {
    options.target = target_;
    if (target_.empty()) options.devices = int(devices_.size());
  }

  std::unique_ptr<VariablePlacer> MakePlacer() const override {
    return std::make_unique<OneDevice>(devices_.front());
  }

  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {step.loss, step.samples, step.stop, How()};
    return {list.begin(), list.end()};
  }

 private:
  class OneDevice final : public VariablePlacer {
   public:
    explicit OneDevice(std::string device) : device_(std::move(device)) {}
    VariablePlacement Place(const VariableRequest& /*request*/) override {
      return {.device = device_};
    }

   private:
    const std::string device_;
  };

  std::string How() const {
    if (target_.empty()) {
      return fmt::format("{} towers on the devices of one process", devices_.size());
    }
    return fmt::format("{} towers on {}", devices_.size(), fmt::join(devices_, ", "));
  }

  const std::vector<std::string> devices_;
  const std::string target_;
};

// The devices of the cluster's tasks that answer: those of the target's own task, then of the other
// tasks of its job, then the rest, each in the order of the cluster. Throws Error if there are
// fewer than `count`.
std::vector<std::string> DevicesAtTarget(const RunConfig& config, size_t count) {
  std::string own;
  std::vector<TaskStatus> tasks = ValueOrThrow(
      StatusOfTarget({.target = config.target, .start_seconds = config.start_timeout}, &own));
  const std::string job = own.substr(0, own.rfind('/') + 1);  // "/job:worker/"
  const auto distance = [&](const TaskStatus& task) {
    return task.task == own ? 0 : task.task.starts_with(job) ? 1 : 2;
  };
  std::stable_sort(tasks.begin(), tasks.end(), [&](const TaskStatus& a, const TaskStatus& b) {
    return distance(a) < distance(b);
  });
  std::vector<std::string> devices, silent;
  for (const TaskStatus& task : tasks) {
    if (!task.error.empty()) silent.push_back(fmt::format("{}: {}", task.task, task.error));
    for (const DeviceInfo& device : task.devices) devices.push_back(device.name);
  }
  if (devices.size() < count) {
    ThrowInvalidArgument(fmt::format(
        "--strategy {} needs {} devices, and the cluster at {} has {}: {}{}; start more tasks, or "
        "give them more devices (tutti server --devices)",
        config.strategy, count, config.target, devices.size(), fmt::join(devices, ", "),
        silent.empty() ? "" : fmt::format(". No answer from {}", fmt::join(silent, "; "))));
  }
  devices.resize(count);
  return devices;
}

}  // namespace

std::shared_ptr<const Strategy> MakeMirroredStrategy(int devices) {
  std::vector<std::string> names;
  for (int i = 0; i < devices; ++i) names.push_back(fmt::format("/cpu:{}", i));
  return std::make_shared<MirroredStrategy>(std::move(names), "");
}

StrategyDef MirroredStrategyDef() {
  return {.name = "mirrored",
          .summary = "N devices of this process, or of the tasks at --target, share each batch",
          .argument = {.syntax = "N",
                       .expected = [](std::string_view text) -> std::string {
                         const int64_t devices = WholeNumber(text, 1);
                         if (devices > 0 && devices <= kMostDevices) return "";
                         return fmt::format("N devices, 1 to {}", kMostDevices);
                       }},
          .one_trainer = true,
          .takes_target = true,
          .make = [](const Launch& launch) -> std::shared_ptr<const Strategy> {
            const int64_t devices = WholeNumber(launch.argument(), 1);
            const RunConfig& config = launch.config;
            if (config.target.empty()) return MakeMirroredStrategy(int(devices));
            return std::make_shared<MirroredStrategy>(DevicesAtTarget(config, size_t(devices)),
                                                      config.target);
          }};
}

}  // namespace tutti
