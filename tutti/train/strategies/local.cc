// One worker. Gradients are those of the mean already, so nothing is added to the graph, and
// updates may be fused with what computes their gradients.
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

class LocalStrategy final : public Strategy {
 public:
  std::string_view name() const override { return "local"; }
  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {step.loss, step.samples, step.stop};
    return {list.begin(), list.end()};
  }
};

}  // namespace

std::shared_ptr<const Strategy> MakeLocalStrategy() { return std::make_shared<LocalStrategy>(); }

StrategyDef LocalStrategyDef() {
  return {.name = "local",
          .summary = "one process",
          .one_trainer = true,
          .takes_target = true,
          .make = [](const Launch&) { return MakeLocalStrategy(); }};
}

}  // namespace tutti
