#include <fmt/format.h>

#include <cmath>
#include <set>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/train/heads/heads.h"

namespace tutti {
namespace {

void CheckTasks(const std::vector<HeadTask>& tasks, Mode mode) {
  if (tasks.empty()) ThrowInvalidArgument("JoinHeads: no task is given; expected at least one");
  std::set<std::string> names;
  for (const HeadTask& task : tasks) {
    if (task.name.empty() || !names.insert(task.name).second) {
      ThrowInvalidArgument(fmt::format(
          "JoinHeads: a task is called \"{}\"; expected a name of its own for each", task.name));
    }
    if (!std::isfinite(task.weight) || task.weight < 0) {
      ThrowInvalidArgument(fmt::format("JoinHeads: the weight of \"{}\" is {}; expected at least 0",
                                       task.name, task.weight));
    }
    if (mode != Mode::kPredict) RequireFloatScalar(task.spec.loss, "loss of " + task.name);
  }
}

}  // namespace

ModelSpec JoinTasks(std::vector<HeadTask> tasks, std::shared_ptr<const Optimizer> optimizer,
                    Mode mode) {
  CheckTasks(tasks, mode);
  ModelSpec joint;
  std::vector<Output> losses;
  for (const HeadTask& task : tasks) {
    for (const auto& [name, metric] : task.spec.metrics) {
      joint.metrics[task.name + "/" + name] = metric;
    }
    for (const auto& [name, value] : task.spec.predictions) {
      joint.predictions[task.name + "/" + name] = value;
    }
    if (mode == Mode::kPredict) continue;
    joint.metrics[task.name + "/loss"] = task.spec.loss;
    losses.push_back(Mul(task.spec.loss, task.weight));
  }
  if (!losses.empty()) joint.loss = losses.size() == 1 ? losses[0] : AddN(losses);
  if (mode == Mode::kTrain) joint.optimizer = std::move(optimizer);
  return joint;
}

}  // namespace tutti
