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
#include <fmt/format.h>

#include "tutti/client/session.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

constexpr int64_t kMostDevices = 1024;  // of a task

class MirroredStrategy final : public Strategy {
 public:
  explicit MirroredStrategy(int devices) : devices_(devices) {}

  std::string_view name() const override { return "mirrored"; }
  std::vector<std::string> Devices() const override {
    std::vector<std::string> devices;
    for (int i = 0; i < devices_; ++i) devices.push_back(fmt::format("/cpu:{}", i));
    return devices;
  }
  void Configure(SessionOptions& options) const override { options.devices = devices_; }

  std::unique_ptr<VariablePlacer> MakePlacer() const override {
    return std::make_unique<FirstDevice>();
  }

  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {step.loss, step.samples, step.stop,
              fmt::format("{} towers on the devices of one process", devices_)};
    return {list.begin(), list.end()};
  }

 private:
  class FirstDevice final : public VariablePlacer {
    VariablePlacement Place(const VariableRequest& /*request*/) override {
      return {.device = "/cpu:0"};
    }
  };

  const int devices_;
};

}  // namespace

std::shared_ptr<const Strategy> MakeMirroredStrategy(int devices) {
  return std::make_shared<MirroredStrategy>(devices);
}

StrategyDef MirroredStrategyDef() {
  return {.name = "mirrored",
          .summary = "one process whose N devices share each batch",
          .argument = {.syntax = "N",
                       .expected = [](std::string_view text) -> std::string {
                         const int64_t devices = WholeNumber(text, 1);
                         if (devices > 0 && devices <= kMostDevices) return "";
                         return fmt::format("N devices, 1 to {}", kMostDevices);
                       }},
          .one_trainer = true,
          .make = [](const Launch& launch) {
            return MakeMirroredStrategy(int(WholeNumber(launch.argument(), 1)));
          }};
}

}  // namespace tutti
