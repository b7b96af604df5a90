#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/train/hooks/hook.h"
#include "tutti/train/optimizers/optimizer.h"

namespace tutti {

class SyncStep;

struct SyncReplicasOptions {
  int aggregate = 0;  // workers whose gradients make an update; 0: total
  int total = 1;  // workers; those over `aggregate` are backups, whose late gradients are dropped
  // Where workers are admitted and released; empty: where the global step is.
  std::string device = {};
  std::string wire = "as-is";  // as-is, bfloat16 or float16: how float32 gradients travel
  // How long a worker waits for an update before its step fails with DEADLINE_EXCEEDED.
  double patience_seconds = 600;
};

// Makes updates of any optimizer synchronous in a program of its own loop, whose workers have
// graphs of their own and share variables on ps tasks: an update is made from the mean of the
// gradients of `aggregate` workers, by the chief, and releases all workers. The nodes are those of
// the strategy ps-sync (strategies/ps/sync_step.h).
//
//   SyncReplicas sync(Adam({.learning_rate = 1e-3}), {.aggregate = 2, .total = 3});
//   const Node* train = sync.Minimize(loss);
//   TrainingSession session(graph, {.session = {.server = &server}, .is_chief = worker == 0,
//                                   .worker = worker, .workers = 3, .hooks = {sync.MakeHook()}});
//   while (!session.ShouldStop()) session.Run(feeds, {}, train);
//
// In TensorFlow's words it is the SyncReplicasOptimizer. There are no tokens to give out at the
// start, because a worker finds the step to begin with by itself. `aggregate` over `total` is
// refused: a worker gives one gradient to an update; ModelSpec::accumulate makes it from several
// batches. Every method throws Error. Not thread-safe.
class SyncReplicas {
 public:
  SyncReplicas(std::shared_ptr<const Optimizer> optimizer, const SyncReplicasOptions& options);
  template <std::derived_from<Optimizer> T>
  SyncReplicas(T optimizer, const SyncReplicasOptions& options)
      : SyncReplicas(std::make_shared<const T>(std::move(optimizer)), options) {}

  std::vector<GradientAndVariable> Gradients(Output loss,
                                             std::span<const Output> variables = {}) const {
    return optimizer_->Gradients(loss, variables);
  }
  // Builds the node that a worker runs to contribute to an update; with the hook of MakeHook, a
  // TrainingSession runs it as one complete step. Call it once per graph. If the mean gradient is
  // not finite, only the step count changes.
  const Node* Apply(std::span<const GradientAndVariable> list);
  const Node* Minimize(Output loss, std::span<const Output> variables = {}) {
    return Apply(Gradients(loss, variables));
  }

  // What makes the steps of a TrainingSession synchronous; on the chief it makes the updates, too.
  // REQUIRES: Apply was called. A hook is for one TrainingSession.
  std::shared_ptr<Hook> MakeHook() const;

 private:
  const std::shared_ptr<const Optimizer> optimizer_;
  SyncReplicasOptions options_;
  std::shared_ptr<SyncStep> step_;  // null before Apply
};

}  // namespace tutti
