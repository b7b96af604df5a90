#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/graph/ops/state.h"
#include "tutti/train/hooks/hook.h"
#include "tutti/train/run_config.h"

namespace tutti {

struct TrainingSessionOptions {
  // TrainingSession uses these fields: max_steps, model_dir, save_every, keep, log_every,
  // summary_every, histograms (of weights), trace (of the chief's steps), start_timeout, program,
  // quiet and verbose. Only the chief needs a model_dir.
  RunConfig run = {};
  SessionOptions session = {};  // a server of a cluster, or a target
  bool is_chief = true;         // gives variables their values, saves
  int worker = 0;
  int workers = 1;
  // A float32 or float64 scalar that hooks, log, progress and summaries see; may be empty. When it
  // is no number, Run throws Error (kOutOfRange) after the step.
  Output loss = {};
  std::vector<std::shared_ptr<Hook>> hooks = {};
  int recoveries = 100;  // most new sessions that are made after losses of tasks
};

// The training loop without an Estimator. The chief initialises the variables or restores its
// newest checkpoint; the other workers wait for that. Hooks run around steps and saves: those of
// the options, and the built-in ones that RunConfig asks for (progress, log, summaries and profiler
// on the chief, and an end at a loss that is not finite). If a task is lost, a new session is made
// as soon as the task is back. If values were lost with it, the chief restores its last checkpoint.
// The failed step is then run again: a server that had already applied its part of that step
// applies it twice, unless SyncReplicas or AsyncReplicas makes the update, which accept one push
// per worker and step. Every worker makes one TrainingSession with the same graph; the options say
// which worker this is.
//
//   TrainingSession session(graph, {.run = config, .session = {.server = &server},
//                                   .is_chief = worker == 0, .worker = worker, .workers = 2});
//   while (!session.ShouldStop()) session.Run({{x, batch}}, {}, train);
//   session.Close();
//
// In TensorFlow's words it is the MonitoredTrainingSession. The graph must have its variables on
// tasks that all workers share, and must not change while it lives. Make it after the scope of a
// VariablePlacementScope. Every method throws Error. Not thread-safe.
class TrainingSession {
 public:
  TrainingSession(Graph& graph, const TrainingSessionOptions& options);
  ~TrainingSession();  // as Close(false)
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  // True if the training is over: after RunConfig::max_steps updates, at the request of a hook, or
  // after a stop signal (train/stop.h).
  bool ShouldStop() const;
  int64_t step() const;  // updates made, as this worker knows

  // One step: runs `train`, and gives what is fetched with it.
  std::vector<Tensor> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                          const Node* train);
  std::vector<Tensor> Run(std::initializer_list<Feed> feeds, std::initializer_list<Output> fetches,
                          const Node* train) {
    return Run(std::span(feeds.begin(), feeds.size()), std::span(fetches.begin(), fetches.size()),
               train);
  }

  // The current session, for runs that are not training steps, such as an evaluation.
  Session& session();

  // Ends the training: the chief saves, and waits up to RunConfig::start_timeout seconds for the
  // other workers to end, because tasks that end with the chief must serve them until then. A
  // second call does nothing. `well`: false, after an error, skips both.
  void Close(bool well = true);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Spreads variables over the devices of ps tasks by bytes, as strategies with parameter servers do
// (strategies/ps/placer.h). Variables that are not trainable scalars go to the first.
//
//   VariablePlacementScope placement(PlaceOn({"/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0"}));
VariablePlacementScope::Place PlaceOn(std::vector<std::string> devices);

}  // namespace tutti
