#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/metrics/metric_states.h"

namespace tutti {
namespace {

std::string NamesOf(const Metrics& metrics) {
  std::string names;
  for (const auto& [name, value] : metrics) names += (names.empty() ? "" : ", ") + name;
  return names;
}

class EarlyStopHook final : public Hook {
 public:
  // `together`: all workers have the metrics, after the same step.
  EarlyStopHook(EarlyStop rule, bool together) : rule_(std::move(rule)), together_(together) {}

  void AfterEvaluation(const EvaluationEnd& end, TrainingControl& control) override {
    const auto found = end.metrics.find(rule_.metric);
    if (found == end.metrics.end()) {
      ThrowInvalidArgument(
          fmt::format("--early-stop: there is no metric \"{}\"; the evaluation has "
                      "{}",
                      rule_.metric, NamesOf(end.metrics)));
    }
    const double value = found->second;
    const bool better =
        std::isnan(best_) || (rule_.smaller_is_better ? value < best_ : value > best_);
    if (better && !std::isnan(value)) {
      best_ = value;
      best_step_ = end.step;
      waited_ = 0;
    } else if (++waited_ >= rule_.patience) {
      std::string reason =
          fmt::format("{} has not become better than {:.6g} (step {}) in {} evaluation{}",
                      rule_.metric, best_, best_step_, waited_, waited_ == 1 ? "" : "s");
      together_ ? control.StopHere(std::move(reason)) : control.Stop(std::move(reason));
    }
  }

 private:
  const EarlyStop rule_;
  const bool together_;
  double best_ = std::nan("");
  int64_t best_step_ = 0;
  int64_t waited_ = 0;
};

}  // namespace

void CheckMetricFlags(const RunConfig& config, const std::vector<std::string>& metrics) {
  const auto check = [&](const char* flag, const std::string& name) {
    if (std::find(metrics.begin(), metrics.end(), name) != metrics.end()) return;
    ThrowInvalidArgument(fmt::format("{}: there is no metric \"{}\"; the evaluation has {}", flag,
                                     name, fmt::join(metrics, ", ")));
  };
  if (!config.early_stop.empty()) check("--early-stop", ParseEarlyStop(config.early_stop).metric);
  if (!config.keep_best.empty()) check("--keep-best", config.keep_best);
}

EarlyStop ParseEarlyStop(const std::string& text) {
  const size_t colon = text.rfind(':');
  EarlyStop rule;
  rule.metric = text.substr(0, colon);
  bool number = colon != std::string::npos;
  if (number) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, rule.patience);
    number = rest == end && error == std::errc() && rule.patience >= 1;
  }
  if (rule.metric.empty() || !number) {
    ThrowInvalidArgument(
        fmt::format("--early-stop is \"{}\"; expected METRIC:PATIENCE, such as "
                    "accuracy:3, with a patience of at least 1 evaluation",
                    text));
  }
  rule.smaller_is_better = SmallerIsBetter(rule.metric);
  return rule;
}

std::shared_ptr<Hook> MakeEarlyStopHook(const RunConfig& config) {
  if (config.early_stop.empty()) return nullptr;
  if (config.eval_every == 0 && config.leads()) {
    Log(LogLevel::kWarning,
        "--early-stop {}: there are no evaluations while the model is trained; give --eval-every "
        "as well",
        config.early_stop);
  }
  return std::make_shared<EarlyStopHook>(ParseEarlyStop(config.early_stop),
                                         config.strategy_object->InLockstep());
}

}  // namespace tutti
