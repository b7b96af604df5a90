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
  // Of it are used: max_steps, model_dir, save_every, keep, log_every, start_timeout, program,
  // quiet and verbose. The model_dir is the chief's; others need none.
  RunConfig run = {};
  SessionOptions session = {};  // a server of a cluster, or a target
  bool is_chief = true;         // gives variables their values, saves
  int worker = 0;
  int workers = 1;
  Output loss = {};  // a float32 or float64 scalar that hooks and the log see; may be empty
  std::vector<std::shared_ptr<Hook>> hooks = {};
  int recoveries = 100;  // how often a session may be made anew after a task was lost
};

// The loop of a training without an Estimator: a session in which the chief gives the variables
// their first values, or those of its newest checkpoint, and the others wait for it; with hooks
// around steps and saves. After a task was lost it makes a new session as soon as the task is back:
// where values were lost with it the chief goes back to the last checkpoint, and the step that
// failed is made again. Every worker has one, with the same graph; which worker this is, the
// options say.
//
//   TrainingSession session(graph, {.run = config, .session = {.server = &server},
//                                   .is_chief = worker == 0, .worker = worker, .workers = 2});
//   while (!session.ShouldStop()) session.Run({{x, batch}}, {}, train);
//   session.Close();
//
// In TensorFlow's words it is the MonitoredTrainingSession. The graph must have its variables on
// tasks that all workers share, and must not change while it lives. Make it after the scope of a
// VariablePlacementScope. Every method throws Error. Not
// thread-safe.
class TrainingSession {
 public:
  TrainingSession(Graph& graph, const TrainingSessionOptions& options);
  ~TrainingSession();  // as Close(false)
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  // Is the training over: RunConfig::max_steps updates, a hook that asks for it, a signal
  // (train/stop.h)?
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

  // For what is no step, such as an evaluation in between.
  Session& session();

  // Ends the training: the chief saves, and waits for the other workers to end as well, so that
  // tasks which end with it are there for them; for RunConfig::start_timeout seconds at most. Does
  // nothing the second time. `well`: false leaves that out, after an error.
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
