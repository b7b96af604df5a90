// The kernels of If and While. Both run nested plans on the lane of the run around them. A nested
// run without asynchronous nodes has finished when Start returns, so a loop over it is a plain
// loop; one that has some finishes later, from the lane, and the loop goes on from there. Either
// way the stack does not grow with the iterations.
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/runtime/executor/nested_plan.h"
#include "tutti/runtime/register.h"

namespace tutti {
namespace {

using SubgraphPtr = std::shared_ptr<const Subgraph>;

std::unique_ptr<NestedPlans> MakePlans(const Node& node, const char* attr) {
  return std::make_unique<NestedPlans>(node.attr<SubgraphPtr>(attr),
                                       node.name() + "/" + attr + "/");
}

absl::StatusOr<bool> BoolOf(const Tensor& value, const char* what) {
  if (value.dtype() != kBool || value.elements() != 1) {
    return InvalidArgument("the {} is {} {}; expected a bool scalar", what, NameOf(value.dtype()),
                           value.shape().ToString());
  }
  return *value.data<bool>();
}

class IfKernel final : public AsyncKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    if (then_ != nullptr) return absl::OkStatus();
    then_ = MakePlans(context.node(), "then_branch");
    else_ = MakePlans(context.node(), "else_branch");
    return absl::OkStatus();
  }

  void Start(KernelContext& context) override {
    if (const absl::Status status = StartBranch(context); !status.ok()) {
      context.completion->NodeDone(context.index, status);
    }
  }
  std::string Awaited(const KernelContext&) const override { return "its branch"; }

 private:
  absl::Status StartBranch(KernelContext& context) {
    TUTTI_ASSIGN_OR_RETURN(const bool predicate, BoolOf(context.input(0), "predicate"));
    args_.clear();
    for (int i = 1; i < context.num_inputs(); ++i) args_.push_back(&context.input(i));
    TUTTI_ASSIGN_OR_RETURN(NestedPlan * plan, (predicate ? then_ : else_)->For(args_, context));
    plan->Start(args_, context, context.step->loops, [this, plan, &context] {
      absl::Status status = plan->Finish(results_);
      if (status.ok()) {
        for (int i = 0; i < context.num_outputs(); ++i) {
          context.SetOutput(i, std::move(results_[i]));
        }
      }
      context.completion->NodeDone(context.index, std::move(status));
    });
    return absl::OkStatus();
  }

  std::unique_ptr<NestedPlans> then_;
  std::unique_ptr<NestedPlans> else_;
  std::vector<const Tensor*> args_;
  std::vector<Tensor> results_;
};

class WhileKernel final : public AsyncKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    if (condition_ != nullptr) return absl::OkStatus();
    const Node& node = context.node();
    condition_ = MakePlans(node, "condition");
    body_ = MakePlans(node, "body");
    body_graph_ = node.attr<SubgraphPtr>("body");
    limit_ = node.attr<int64_t>("max_iterations");
    return absl::OkStatus();
  }

  void Start(KernelContext& context) override {
    context_ = &context;
    values_.assign(size_t(context.num_inputs()), Tensor());
    for (int i = 0; i < context.num_inputs(); ++i) values_[i] = context.input(i);
    args_.clear();
    for (const Tensor& value : values_) args_.push_back(&value);
    records_.assign(body_graph_->results.size(), {});
    iterations_ = 0;
    in_body_ = false;
    running_ = nullptr;
    Continue();
  }
  std::string Awaited(const KernelContext&) const override { return "its body"; }

 private:
  // Goes on until the loop has ended or waits for a nested run, whose end calls it again.
  void Continue() {
    if (continuing_) return;
    continuing_ = true;
    bool ended = false;
    absl::Status status;
    try {
      status = Loop(&ended);
      if (ended && status.ok()) status = SetOutputs();
    } catch (...) {
      // It may have come here from the lane, where nobody else would catch it.
      status = StatusFromCurrentException();
    }
    continuing_ = false;
    if (status.ok() && !ended) return;
    values_.clear();
    records_.clear();
    context_->completion->NodeDone(context_->index, std::move(status));
  }

  // Returns with *ended false when a nested run has not finished.
  absl::Status Loop(bool* ended) {
    while (!*ended) {
      if (running_ == nullptr) TUTTI_RETURN_IF_ERROR(StartNested());
      if (!finished_) return absl::OkStatus();
      TUTTI_RETURN_IF_ERROR(FinishNested(ended));
    }
    return absl::OkStatus();
  }

  absl::Status StartNested() {
    if (context_->cancellation().cancelled()) return context_->cancellation().status();
    TUTTI_ASSIGN_OR_RETURN(NestedPlan * plan,
                           (in_body_ ? body_ : condition_)->For(args_, *context_));
    running_ = plan;
    finished_ = false;
    frame_ = {context_->step->loops, iterations_};
    running_->Start(args_, *context_, &frame_, [this] {
      finished_ = true;
      Continue();
    });
    return absl::OkStatus();
  }

  absl::Status FinishNested(bool* ended) {
    NestedPlan* const plan = std::exchange(running_, nullptr);
    TUTTI_RETURN_IF_ERROR(plan->Finish(results_));
    if (in_body_) {
      in_body_ = false;
      TUTTI_RETURN_IF_ERROR(NextIteration());
      *ended = limit_ > 0 && iterations_ >= limit_;
      return absl::OkStatus();
    }
    TUTTI_ASSIGN_OR_RETURN(const bool again, BoolOf(results_[0], "condition"));
    in_body_ = true;
    *ended = !again;
    return absl::OkStatus();
  }

  absl::Status NextIteration() {
    for (size_t i = 0; i < results_.size(); ++i) {
      const Shape& promised = body_graph_->args[i].shape();
      if (!results_[i].shape().CompatibleWith(promised)) {
        return InvalidArgument(
            "iteration {} gives loop variable {} the shape {}; it was built for {}, and "
            "WhileOptions::shapes can leave dimensions open",
            iterations_, i, results_[i].shape().ToString(), promised.ToString());
      }
      if (context_->output_consumed(int(results_.size() + i))) {
        records_[i].push_back(std::move(values_[i]));
      }
      values_[i] = std::move(results_[i]);
    }
    ++iterations_;
    return absl::OkStatus();
  }

  absl::Status SetOutputs() {
    const int count = int(records_.size());
    for (int i = 0; i < count; ++i) {
      if (context_->output_consumed(count + i)) TUTTI_RETURN_IF_ERROR(SetRecord(i));
      context_->SetOutput(i, values_[i]);
    }
    context_->SetOutput(2 * count, Tensor::Scalar<int64_t>(iterations_));
    return absl::OkStatus();
  }

  // The values of loop variable i at the start of each iteration, stacked.
  absl::Status SetRecord(int i) {
    const std::vector<Tensor>& record = records_[i];
    const Tensor& first = record.empty() ? values_[i] : record.front();
    const int output = int(records_.size()) + i;
    TUTTI_RETURN_IF_ERROR(
        context_->AllocateOutput(output, first.shape().WithInserted(0, int64_t(record.size()))));
    auto* to = static_cast<char*>(context_->output(output).raw());
    for (const Tensor& value : record) {
      if (!(value.shape() == first.shape())) {
        return InvalidArgument(
            "loop variable {} changes its shape from {} to {}, so its values cannot be kept for "
            "the gradient",
            i, first.shape().ToString(), value.shape().ToString());
      }
      if (value.bytes() > 0) std::memcpy(to, value.raw(), value.bytes());
      to += value.bytes();
    }
    return absl::OkStatus();
  }

  std::unique_ptr<NestedPlans> condition_;
  std::unique_ptr<NestedPlans> body_;
  SubgraphPtr body_graph_;
  int64_t limit_ = 0;

  KernelContext* context_ = nullptr;
  std::vector<Tensor> values_;  // loop variables, then what is captured
  std::vector<const Tensor*> args_;
  std::vector<Tensor> results_;
  std::vector<std::vector<Tensor>> records_;  // by loop variable, where they are wanted
  NestedPlan* running_ = nullptr;             // started, and not yet looked at
  int64_t iterations_ = 0;
  LoopFrame frame_;          // of the nested run
  bool in_body_ = false;     // the nested run is the body's, not the condition's
  bool finished_ = false;    // the nested run is done
  bool continuing_ = false;  // Continue is on the stack
};

}  // namespace

void RegisterControlFlowKernels(KernelRegistry& registry) {
  AddKernel<IfKernel>(registry, "If", "cpu");
  AddKernel<WhileKernel>(registry, "While", "cpu");
}

}  // namespace tutti
