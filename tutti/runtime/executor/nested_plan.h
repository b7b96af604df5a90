#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/pipeline.h"
#include "tutti/runtime/executor/executor.h"
#include "tutti/runtime/executor/plan_instance.h"

namespace tutti {

// A subgraph of an If or While, compiled for args of certain types, with what one run of it needs.
// It runs on the lane of the run around it and never at the same time twice. A Variable that the
// subgraph updates is the variable itself inside; every other arg is a value.
class NestedPlan {
 public:
  // Nodes of the plan are named `prefix` + their name in the subgraph.
  static absl::StatusOr<std::unique_ptr<NestedPlan>> Make(const Subgraph& subgraph,
                                                          std::span<const ValueType> args,
                                                          const std::string& prefix, Device& device,
                                                          const CompileOptions& options);

  // Is it for args of these types?
  bool Fits(std::span<const Tensor* const> args) const;

  // Runs it as part of the step of `outer`, inside `loops`, which live until it has finished.
  // `finished` is called once, on the lane's thread, perhaps before Start returns; Finish must
  // follow.
  void Start(std::span<const Tensor* const> args, const KernelContext& outer,
             const LoopFrame* loops, std::function<void()> finished);

  // The results of the run that has finished, or its error.
  absl::Status Finish(std::vector<Tensor>& results);

 private:
  std::vector<ValueType> args_;
  std::vector<int> fed_args_;   // by feed of the plan: which arg it is
  std::vector<int> result_of_;  // by fetch of the plan: which result it is
  size_t num_results_ = 0;
  std::unique_ptr<StepPlan> plan_;
  std::unique_ptr<PlanInstance> instance_;
  StepContext step_;
  std::optional<StepRun> run_;
};

// The plans of one subgraph for the types of args it was called with, made when first needed. The
// least recently used are evicted when there are too many. Not thread-safe.
class NestedPlans {
 public:
  NestedPlans(std::shared_ptr<const Subgraph> subgraph, std::string prefix)
      : subgraph_(std::move(subgraph)), prefix_(std::move(prefix)) {}

  // The plan for these args, compiled like the run around it, that of `outer`.
  absl::StatusOr<NestedPlan*> For(std::span<const Tensor* const> args, const KernelContext& outer);

 private:
  std::shared_ptr<const Subgraph> subgraph_;
  std::string prefix_;
  std::list<std::unique_ptr<NestedPlan>> plans_;  // the last used is first
};

}  // namespace tutti
