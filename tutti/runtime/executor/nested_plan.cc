#include "tutti/runtime/executor/nested_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// A vector that grows by an element each iteration needs a plan for every length; this many are
// kept.
constexpr size_t kMostPlans = 16;

// Does something in the subgraph, or in those inside it, update the variable that `arg` stands for?
// Subgraphs nest at most 64 deep.
bool Updates(const Subgraph& subgraph, Output arg) {
  for (const auto& node : subgraph.graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!(node->input(i) == arg)) continue;
      if (node->def().IsVariableInput(i)) return true;
      for (const auto& [name, value] : node->attrs()) {
        const auto* inner = std::get_if<std::shared_ptr<const Subgraph>>(&value);
        if (inner == nullptr || *inner == nullptr) continue;
        // Args stand for the last inputs: an If's predicate is not among them.
        const int first = node->num_inputs() - int((*inner)->args.size());
        if (i >= first && Updates(**inner, (*inner)->args[i - first])) return true;
      }
    }
  }
  return false;
}

StepRun& RunAround(const KernelContext& outer) { return *outer.step->run; }

// Makes a program of a subgraph: a Placeholder for each arg, or the Variable it stands for.
class SubgraphProgram {
 public:
  SubgraphProgram(const Subgraph& subgraph, std::span<const ValueType> args,
                  const std::string& prefix)
      : subgraph_(subgraph), args_(args), prefix_(prefix) {}

  absl::StatusOr<Program> Make(std::vector<int>& fed_args) {
    for (size_t i = 0; i < args_.size(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(const bool fed, AddArg(i));
      if (fed) fed_args.push_back(int(i));
    }
    const std::vector<bool> needed = Needed();
    for (const auto& node : subgraph_.graph->nodes()) {
      if (needed[node->id()] && node->op() != "Arg") TUTTI_RETURN_IF_ERROR(Copy(*node));
    }
    for (const Output& result : subgraph_.results) program_.fetches.push_back(copies_.at(result));
    return std::move(program_);
  }

 private:
  absl::StatusOr<bool> AddArg(size_t i) {
    const Output arg = subgraph_.args[i];
    const auto variable = arg.node->FindAttr("_variable");
    const bool by_reference = variable != nullptr && Updates(subgraph_, arg);
    NodeSpec spec;
    spec.op = by_reference ? "Variable" : "Placeholder";
    spec.name = by_reference ? std::get<std::string>(*variable) : prefix_ + arg.node->name();
    spec.attrs = {{"dtype", args_[i].dtype}, {"shape", args_[i].shape}};
    if (const auto container = arg.node->FindAttr("_container"); by_reference && container) {
      spec.attrs.emplace_back("container", *container);
    }
    TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(*program_.graph, std::move(spec)));
    copies_[arg] = node->output();
    if (!by_reference) program_.feeds.push_back(node->output());
    return !by_reference;
  }

  // What the results need, and nodes with effects.
  std::vector<bool> Needed() const {
    const auto& nodes = subgraph_.graph->nodes();
    std::vector<bool> needed(nodes.size(), false);
    for (const Output& result : subgraph_.results) needed[result.node->id()] = true;
    for (size_t id = nodes.size(); id-- > 0;) {
      if (nodes[id]->def().stateful) needed[id] = true;
      if (!needed[id]) continue;
      for (const Output& input : nodes[id]->inputs()) needed[input.node->id()] = true;
      for (const Node* control : nodes[id]->control_inputs()) needed[control->id()] = true;
    }
    return needed;
  }

  absl::Status Copy(const Node& node) {
    NodeSpec spec = node.spec();
    spec.name = prefix_ + node.name();
    if (program_.graph->Find(spec.name) != nullptr) {
      spec.name = program_.graph->UniqueName(spec.name);
    }
    spec.device.clear();  // all of it runs where the If or While does
    std::erase_if(spec.attrs, [](const Attr& attr) { return attr.first == "_colocate"; });
    for (Output& input : spec.inputs) input = copies_.at(input);
    std::erase_if(spec.control_inputs,
                  [&](const Node* control) { return !nodes_.contains(control); });
    for (const Node*& control : spec.control_inputs) control = nodes_.at(control);
    TUTTI_ASSIGN_OR_RETURN(Node * copy, AddNode(*program_.graph, std::move(spec)));
    nodes_[&node] = copy;
    for (int i = 0; i < node.num_outputs(); ++i) copies_[node.output(i)] = copy->output(i);
    if (node.def().stateful) program_.targets.push_back(copy);
    return absl::OkStatus();
  }

  const Subgraph& subgraph_;
  std::span<const ValueType> args_;
  const std::string& prefix_;
  Program program_;
  std::unordered_map<Output, Output, OutputHash> copies_;
  std::unordered_map<const Node*, const Node*> nodes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NestedPlan>> NestedPlan::Make(const Subgraph& subgraph,
                                                             std::span<const ValueType> args,
                                                             const std::string& prefix,
                                                             Device& device,
                                                             const CompileOptions& options) {
  auto nested = std::make_unique<NestedPlan>();
  nested->args_.assign(args.begin(), args.end());
  nested->num_results_ = subgraph.results.size();
  std::vector<int> fed_args;
  TUTTI_ASSIGN_OR_RETURN(const Program program,
                         SubgraphProgram(subgraph, args, prefix).Make(fed_args));
  const DeviceInfo devices[] = {device.info()};
  TUTTI_ASSIGN_OR_RETURN(std::vector<Partition> parts,
                         CompileWhole(program, devices, &device, options));
  if (parts.size() != 1) {
    return Internal("{} was cut into {} parts; expected one", prefix, parts.size());
  }
  for (const int feed : parts[0].feed_index) nested->fed_args_.push_back(fed_args[feed]);
  nested->result_of_ = parts[0].fetch_index;
  TUTTI_ASSIGN_OR_RETURN(Program optimized,
                         OptimizePart(std::move(parts[0].program), device, options));
  TUTTI_ASSIGN_OR_RETURN(nested->plan_, MakeStepPlan(std::move(optimized), device));
  TUTTI_ASSIGN_OR_RETURN(nested->instance_, PlanInstance::Make(*nested->plan_));
  return nested;
}

bool NestedPlan::Fits(std::span<const Tensor* const> args) const {
  for (size_t i = 0; i < args_.size(); ++i) {
    if (args[i]->dtype() != args_[i].dtype || !(args[i]->shape() == args_[i].shape)) return false;
  }
  return true;
}

void NestedPlan::Start(std::span<const Tensor* const> args, const KernelContext& outer,
                       const LoopFrame* loops, std::function<void()> finished) {
  for (size_t i = 0; i < plan_->feeds.size(); ++i) {
    instance_->value(plan_->feeds[i]) = *args[fed_args_[i]];
  }
  step_ = *outer.step;
  step_.loops = loops;
  StepRun& around = RunAround(outer);
  if (!run_ || &run_->lane() != &around.lane()) run_.emplace(*instance_, around.lane(), step_);
  run_->records = around.records;
  run_->options = around.options;
  run_->unfinished = around.unfinished;
  run_->Start(std::move(finished));
}

absl::Status NestedPlan::Finish(std::vector<Tensor>& results) {
  const absl::Status status = run_->status();
  if (status.ok()) {
    results.resize(num_results_);
    for (size_t i = 0; i < plan_->fetches.size(); ++i) {
      results[result_of_[i]] = instance_->value(plan_->fetches[i]);
    }
  }
  instance_->EndRun();
  return status;
}

absl::StatusOr<NestedPlan*> NestedPlans::For(std::span<const Tensor* const> args,
                                             const KernelContext& outer) {
  const auto it = std::find_if(plans_.begin(), plans_.end(),
                               [&](const auto& plan) { return plan->Fits(args); });
  if (it != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front().get();
  }
  std::vector<ValueType> types;
  for (const Tensor* arg : args) types.push_back({arg->dtype(), arg->shape()});
  TUTTI_ASSIGN_OR_RETURN(auto plan, NestedPlan::Make(*subgraph_, types, prefix_, outer.device(),
                                                     RunAround(outer).options));
  plans_.push_front(std::move(plan));
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return plans_.front().get();
}

}  // namespace tutti
