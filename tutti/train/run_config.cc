#include "tutti/train/run_config.h"

#include <fmt/format.h>

#include <optional>

#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {

void RunConfig::Join() {
  if (strategy_object != nullptr) return;
  const StrategyDef& def = FindStrategy(strategy);
  strategy_flags = CompleteFlags(def, strategy_flags);
  std::optional<TaskConfig> parsed;
  if (!tf_config.empty()) parsed = ValueOrThrow(ParseTfConfig(tf_config));
  if (parsed) {
    CheckRole(def, *parsed);
    if (!IsEvaluator(*parsed) && !Trains(def, *parsed)) {
      ThrowInvalidArgument(fmt::format("{} does not train with strategy {}; it has no Estimator",
                                       ToString(parsed->task), strategy));
    }
    role = ToString(parsed->task);
    job = parsed->task.job;
    task = parsed->task.index;
    // Tasks of a sparse cluster do not all know of it.
    has_evaluator = !parsed->sparse && parsed->cluster.jobs().contains("evaluator");
    if (evaluates()) {
      strategy_object = MakeLocalStrategy();
      return;
    }
  }
  strategy_object = def.make({*this, parsed ? &*parsed : nullptr});
}

bool RunConfig::Shows(std::string_view what) const {
  const std::string words = "," + show + ",";
  return words.find("," + std::string(what) + ",") != std::string::npos;
}

LearningRate RunConfig::Adjusted(const LearningRate& rate) const {
  LearningRate adjusted = rate;
  const int batches = strategy_object == nullptr ? 1 : strategy_object->BatchesPerUpdate();
  if (scale_learning_rate && batches > 1) {
    adjusted = LearningRate([rate, factor = double(batches)](Output step) {
      return Mul(rate.BuildFrom(step), factor);
    });
  }
  return warmup_steps > 0 ? WithWarmup(warmup_steps, adjusted) : adjusted;
}

}  // namespace tutti
