#include "tutti/base/clock.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/reporting/worker_trace.h"

namespace tutti {
namespace {

// On every worker: they write one file together.
class ProfilerHook final : public Hook {
 public:
  ProfilerHook(const RunConfig& config, TraceRequest request)
      : config_(config), request_(std::move(request)) {}

  bool BeforeStep(int64_t step) override {
    const bool traced = step + 1 >= request_.first && step + 1 <= request_.last;
    if (traced) began_ = NowNanos();
    return traced;
  }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (end.step < request_.first || end.step > request_.last) return;
    if (end.trace != nullptr) steps_.push_back({began_, *end.trace});
    if (end.step == request_.last) Write();
  }
  // The training ended before the last step that was asked for.
  void OnEnd(const TrainingEnd& /*end*/) override { Write(); }

 private:
  void Write() {
    if (steps_.empty()) return;
    WriteWorkerTraces(config_, request_.path, steps_);
    steps_.clear();
  }

  const RunConfig& config_;
  const TraceRequest request_;
  int64_t began_ = 0;
  std::vector<StepTrace> steps_;
};

}  // namespace

std::shared_ptr<Hook> MakeProfilerHook(const RunConfig& config, int64_t step, int64_t max_steps) {
  if (!config.strategy_object->InLockstep()) return nullptr;  // they have no step together
  TraceRequest request = AgreeOnTrace(config, step, max_steps);
  if (request.first == 0) return nullptr;
  return std::make_shared<ProfilerHook>(config, std::move(request));
}

}  // namespace tutti
