// The hooks that report to the user (progress, log, evaluations), and the hook that looks for NaN.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/train/estimator/bad_values.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/every_steps.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/reporting/progress.h"

namespace tutti {
namespace {

class NanHook final : public Hook {
 public:
  explicit NanHook(const RunConfig& config)
      : peers_(config.strategy_object->peers()), lockstep_(config.strategy_object->InLockstep()) {}

  void OnStart(const TrainingStart& start) override { loss_ = start.training.spec.loss; }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (std::isfinite(end.loss)) return;
    // Workers that are not in lockstep do not come here together.
    AlonePeers alone;
    ThrowBadValues(lockstep_ ? peers_ : alone, peers_.rank(), loss_, end);
  }
  void OnEnd(const TrainingEnd& end) override {
    // A worker that is not in lockstep may have made no step at all.
    if (end.feeds.empty()) return;
    AlonePeers alone;
    CheckLastUpdate(lockstep_ ? peers_ : alone, peers_.rank(), loss_, end);
  }

 private:
  Peers& peers_;
  const bool lockstep_;
  Output loss_;
};

class ProgressHook final : public Hook {
 public:
  void OnStart(const TrainingStart& start) override {
    progress_.emplace(
        ProgressOptions{.label = "step", .total = start.max_steps, .start = start.step});
  }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (end.values.empty() || !progress_->Due()) {
      progress_->Update(end.step, {{"loss", end.loss}});
      return;
    }
    std::vector<ProgressValue> values = {{"loss", end.loss}};
    for (const auto& [name, value] : end.values) values.emplace_back(name, value);
    progress_->Update(end.step, values);
  }
  void OnEnd(const TrainingEnd& /*end*/) override { progress_->Finish(); }

 private:
  std::optional<Progress> progress_;
};

class LogHook final : public Hook {
 public:
  explicit LogHook(int64_t every) : every_(every) {}
  void OnSession(const SessionStart& start) override { every_.Begin(start.step); }
  void OnStart(const TrainingStart& start) override { every_.Begin(start.step); }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (!every_.Reached(end.step)) return;
    std::string text = fmt::format("step {} loss {:.6f}", end.step, end.loss);
    for (const auto& [name, value] : end.values) text += fmt::format(" {} {:.6g}", name, value);
    WriteTo(stderr, text + "\n");
  }

 private:
  EverySteps every_;
};

class EvaluationHook final : public Hook {
 public:
  EvaluationHook(const RunConfig& config, std::function<Metrics()> evaluate)
      : tells_(config.Tells()), every_(config.eval_every), evaluate_(std::move(evaluate)) {}

  void OnStart(const TrainingStart& start) override {
    every_.Begin(start.step);
    max_steps_ = start.max_steps;
  }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    // After the last step whoever trains evaluates anyway.
    if (!every_.Reached(end.step) || end.step >= max_steps_) return;
    const Metrics metrics = evaluate_();
    if (!tells_) return;
    std::string text = fmt::format("step {} evaluation:", end.step);
    for (const auto& [name, value] : metrics) text += fmt::format(" {} {:.6g}", name, value);
    WriteTo(stderr, text + "\n");
  }

 private:
  const bool tells_;
  EverySteps every_;
  const std::function<Metrics()> evaluate_;
  int64_t max_steps_ = 0;
};

}  // namespace

std::shared_ptr<Hook> MakeNanHook(const RunConfig& config) {
  return std::make_shared<NanHook>(config);
}

std::shared_ptr<Hook> MakeProgressHook(const RunConfig& config) {
  return config.Tells() ? std::make_shared<ProgressHook>() : nullptr;
}

std::shared_ptr<Hook> MakeLogHook(const RunConfig& config) {
  if (!config.Tells() || config.log_every <= 0) return nullptr;
  return std::make_shared<LogHook>(config.log_every);
}

std::shared_ptr<Hook> MakeEvaluationHook(const RunConfig& config,
                                         std::function<Metrics()> evaluate) {
  if (config.eval_every <= 0 || !evaluate || config.leaves_evaluation()) return nullptr;
  // Others have no step together with the worker that leads, which evaluates alone.
  if (!config.strategy_object->InLockstep() && !config.leads()) return nullptr;
  return std::make_shared<EvaluationHook>(config, std::move(evaluate));
}

}  // namespace tutti
