#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/train/hooks/hook.h"

namespace tutti {

// The hooks of a training, called in order; a null among them is left out.
class HookList {
 public:
  void Add(std::shared_ptr<Hook> hook);

  void OnStart(const TrainingStart& start);
  bool BeforeStep(int64_t step);  // does one of them want a trace?
  void AfterStep(const StepEnd& end);
  void BeforeSave(int64_t step);
  void AfterSave(const SaveEnd& end);
  void AfterEvaluation(const EvaluationEnd& end);
  void OnEnd(const TrainingEnd& end);
  void OnSession(const SessionStart& start);
  void BeforeRun(SessionRun& run);
  void AfterRun(SessionRun& run, std::span<const Tensor> fetched);
  void OnRunError(const Error& error);
  void OnSessionEnd(bool well);
  bool KeepsLiveState() const;  // do all of them?

  // What the hooks have asked for since the start.
  const TrainingControl& control() const { return control_; }

 private:
  std::vector<std::shared_ptr<Hook>> hooks_;
  TrainingControl control_;
};

}  // namespace tutti
