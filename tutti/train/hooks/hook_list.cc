#include "tutti/train/hooks/hook_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/train/every_steps.h"
#include "tutti/train/hooks/built_in.h"

namespace tutti {
namespace {

class StepsHook final : public Hook {
 public:
  StepsHook(int64_t every, std::function<void(const StepEnd&, TrainingControl&)> function)
      : every_(every), function_(std::move(function)) {}
  void OnSession(const SessionStart& start) override { every_.Begin(start.step); }
  void OnStart(const TrainingStart& start) override { every_.Begin(start.step); }
  void AfterStep(const StepEnd& end, TrainingControl& control) override {
    if (every_.Reached(end.step)) function_(end, control);
  }

 private:
  EverySteps every_;
  const std::function<void(const StepEnd&, TrainingControl&)> function_;
};

}  // namespace

std::shared_ptr<Hook> AfterSteps(int64_t every,
                                 std::function<void(const StepEnd&, TrainingControl&)> function) {
  if (every < 1) ThrowInvalidArgument(fmt::format("AfterSteps: every is {}; expected 1 on", every));
  if (!function) ThrowInvalidArgument("AfterSteps: the function is empty");
  return std::make_shared<StepsHook>(every, std::move(function));
}

void HookList::Add(std::shared_ptr<Hook> hook) {
  if (hook != nullptr) hooks_.push_back(std::move(hook));
}

void HookList::OnStart(const TrainingStart& start) {
  control_.Clear();
  for (const auto& hook : hooks_) hook->OnStart(start);
}

bool HookList::BeforeStep(int64_t step) {
  bool trace = false;
  for (const auto& hook : hooks_) trace = hook->BeforeStep(step) || trace;
  return trace;
}

void HookList::AfterStep(const StepEnd& end) {
  for (const auto& hook : hooks_) hook->AfterStep(end, control_);
}

void HookList::BeforeSave(int64_t step) {
  for (const auto& hook : hooks_) hook->BeforeSave(step);
}

void HookList::AfterSave(const SaveEnd& end) {
  for (const auto& hook : hooks_) hook->AfterSave(end);
}

void HookList::AfterEvaluation(const EvaluationEnd& end) {
  for (const auto& hook : hooks_) hook->AfterEvaluation(end, control_);
}

void HookList::OnEnd(const TrainingEnd& end) {
  for (auto hook = hooks_.rbegin(); hook != hooks_.rend(); ++hook) (*hook)->OnEnd(end);
}

void HookList::OnSession(const SessionStart& start) {
  for (const auto& hook : hooks_) hook->OnSession(start);
}

void HookList::BeforeRun(SessionRun& run) {
  for (const auto& hook : hooks_) hook->BeforeRun(run);
}

void HookList::AfterRun(SessionRun& run, std::span<const Tensor> fetched) {
  for (const auto& hook : hooks_) hook->AfterRun(run, fetched);
}

void HookList::OnRunError(const Error& error) {
  for (const auto& hook : hooks_) hook->OnRunError(error);
}

void HookList::OnSessionEnd(bool well) {
  for (auto hook = hooks_.rbegin(); hook != hooks_.rend(); ++hook) (*hook)->OnSessionEnd(well);
}

bool HookList::KeepsLiveState() const {
  return std::all_of(hooks_.begin(), hooks_.end(),
                     [](const auto& hook) { return hook->KeepsLiveState(); });
}

HookList MakeHooks(const RunConfig& config, const std::vector<std::shared_ptr<Hook>>& own,
                   int64_t step, int64_t max_steps, std::function<Metrics()> evaluate) {
  HookList hooks;
  hooks.Add(MakeNanHook(config));
  hooks.Add(MakeProfilerHook(config, step, max_steps));
  for (const auto& hook : own) hooks.Add(hook);
  hooks.Add(MakeSummaryHook(config));
  hooks.Add(MakeLogHook(config));
  hooks.Add(MakeProgressHook(config));
  hooks.Add(MakeEarlyStopHook(config));
  hooks.Add(MakeEvaluationHook(config, std::move(evaluate)));
  return hooks;
}

}  // namespace tutti
