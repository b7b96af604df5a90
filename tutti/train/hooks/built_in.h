#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/train/hooks/hook.h"
#include "tutti/train/hooks/hook_list.h"
#include "tutti/train/run_config.h"

// The hooks that an Estimator has by itself. A function gives null where there is nothing to do.
namespace tutti {

// Ends the training with an Error (kOutOfRange) that names the first tensor that is not finite,
// when the loss of a step is no number, or that of the last batch after the last update.
std::shared_ptr<Hook> MakeNanHook(const RunConfig& config);

// A bar on a terminal, a line every 10 s elsewhere; on the worker that leads, unless --quiet.
std::shared_ptr<Hook> MakeProgressHook(const RunConfig& config);

// "step 100 loss 0.312500 learning_rate 0.001" every --log-every steps, on the worker that leads.
std::shared_ptr<Hook> MakeLogHook(const RunConfig& config);

// A Chrome trace of all workers, or of the one that leads where they are not in lockstep: --trace.
// `step` updates were made before. All workers call it. Throws Error.
std::shared_ptr<Hook> MakeProfilerHook(const RunConfig& config, int64_t step, int64_t max_steps);

// Evaluates every --eval-every steps: on all workers, or on the one that leads where they are not
// in lockstep. `evaluate` must reach AfterEvaluation of all hooks.
std::shared_ptr<Hook> MakeEvaluationHook(const RunConfig& config,
                                         std::function<Metrics()> evaluate);

// Ends the training when a metric has not become better in so many evaluations: --early-stop. Where
// workers are not in lockstep, the others learn of it with the next step of the one that leads.
// The metric's name tells what is better (SmallerIsBetter, metrics/metric_states.h). Throws Error
// for a malformed text.
std::shared_ptr<Hook> MakeEarlyStopHook(const RunConfig& config);

// What an evaluation, a step, a save leaves for TensorBoard and metrics.jsonl in --model-dir
// (summaries/summary_hook.cc); on the worker that leads.
std::shared_ptr<Hook> MakeSummaryHook(const RunConfig& config);

// All of them that `config` asks for, with `own` after those that may end the training. All workers
// call it. `config` must outlive the list. Throws Error.
HookList MakeHooks(const RunConfig& config, const std::vector<std::shared_ptr<Hook>>& own,
                   int64_t step, int64_t max_steps, std::function<Metrics()> evaluate);

struct EarlyStop {
  std::string metric;
  int64_t patience = 1;
  bool smaller_is_better = true;
};
// Throws Error (kInvalidArgument) when --early-stop or --keep-best names a metric that is none of
// `metrics`, which the evaluation gives.
void CheckMetricFlags(const RunConfig& config, const std::vector<std::string>& metrics);

// Of "accuracy:3". Throws Error (kInvalidArgument).
EarlyStop ParseEarlyStop(const std::string& text);

}  // namespace tutti
