#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/reporting/worker_trace.h"

namespace tutti {
namespace {

// Workers in lockstep have one each, and write one file together. Else only the worker that leads
// has one. Steps may jump over numbers: the trace has those of the worker's own that are in the
// range, and the one that passes its end.
class ProfilerHook final : public Hook {
 public:
  ProfilerHook(const RunConfig& config, TraceRequest request)
      : config_(config), request_(std::move(request)) {}

  bool BeforeStep(int64_t step) override {
    const bool traced = !written_ && step + 1 >= request_.first;
    if (traced) began_ = NowNanos();
    return traced;
  }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (written_) return;
    if (end.trace != nullptr) steps_.push_back({began_, *end.trace});
    if (end.step >= request_.last) Write();
  }
  // The training ended before the last step that was asked for.
  void OnEnd(const TrainingEnd& end) override {
    if (!written_ && end.step >= request_.first) Write();
  }

 private:
  void Write() {
    written_ = true;
    if (config_.strategy_object->InLockstep()) {
      WriteWorkerTraces(config_, config_.strategy_object->peers(), request_.path, steps_);
    } else {
      AlonePeers alone;
      WriteWorkerTraces(config_, alone, request_.path, steps_);
    }
    steps_.clear();
  }

  const RunConfig& config_;
  const TraceRequest request_;
  int64_t began_ = 0;
  bool written_ = false;
  std::vector<StepTrace> steps_;
};

// Of the worker that leads, where workers are not in lockstep.
TraceRequest OwnTrace(const RunConfig& config, int64_t step, int64_t max_steps) {
  if (config.trace.empty() || !config.leads()) return {};
  if (config.workers() > 1 && config.Tells()) {
    FormatTo(stderr,
             "{}: --trace: worker 0 alone is traced, since workers of strategy {} make steps of "
             "their own\n",
             config.program, config.strategy);
  }
  AlonePeers alone;
  return AgreeOnTrace(config, alone, step, max_steps);
}

}  // namespace

std::shared_ptr<Hook> MakeProfilerHook(const RunConfig& config, int64_t step, int64_t max_steps) {
  const Strategy& strategy = *config.strategy_object;
  TraceRequest request = strategy.InLockstep()
                             ? AgreeOnTrace(config, strategy.peers(), step, max_steps)
                             : OwnTrace(config, step, max_steps);
  if (request.first == 0 || request.last <= step) return nullptr;
  return std::make_shared<ProfilerHook>(config, std::move(request));
}

}  // namespace tutti
