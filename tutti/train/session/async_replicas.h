#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tutti/train/hooks/hook.h"
#include "tutti/train/optimizers/optimizer.h"

namespace tutti {

struct AsyncReplicasOptions {
  int total = 1;  // workers
};

// Makes every gradient of a worker count once in a program of its own loop, whose workers have
// graphs of their own, share variables on ps tasks, and apply their gradients without waiting for
// each other. A TrainingSession runs a step again that failed with the loss of a task or of a
// connection. Then the servers that had applied their part of the step leave it out, and the others
// apply theirs.
//
//   AsyncReplicas async(Adam({.learning_rate = 1e-3}), {.total = 3});
//   const Node* train = async.Minimize(loss);
//   TrainingSession session(graph, {.session = {.server = &server}, .is_chief = worker == 0,
//                                   .worker = worker, .workers = 3, .hooks = {async.MakeHook()}});
//   while (!session.ShouldStop()) session.Run(feeds, {}, train);
//
// Every method throws Error. Not thread-safe.
class AsyncReplicas {
 public:
  AsyncReplicas(std::shared_ptr<const Optimizer> optimizer, const AsyncReplicasOptions& options);
  template <std::derived_from<Optimizer> T>
  AsyncReplicas(T optimizer, const AsyncReplicasOptions& options)
      : AsyncReplicas(std::make_shared<const T>(std::move(optimizer)), options) {}
  ~AsyncReplicas();

  std::vector<GradientAndVariable> Gradients(Output loss,
                                             std::span<const Output> variables = {}) const {
    return optimizer_->Gradients(loss, variables);
  }
  // Builds the node that a worker runs to apply its gradients and to count the step. Call it once
  // per graph.
  const Node* Apply(std::span<const GradientAndVariable> list);
  const Node* Minimize(Output loss, std::span<const Output> variables = {}) {
    return Apply(Gradients(loss, variables));
  }

  // What numbers the steps of a TrainingSession.
  // REQUIRES: Apply was called. A hook is for one TrainingSession.
  std::shared_ptr<Hook> MakeHook() const;

 private:
  struct Nodes;
  class PushHook;

  const std::shared_ptr<const Optimizer> optimizer_;
  const AsyncReplicasOptions options_;
  std::shared_ptr<const Nodes> nodes_;  // null before Apply
};

}  // namespace tutti
