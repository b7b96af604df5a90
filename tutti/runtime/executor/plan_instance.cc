#include "tutti/runtime/executor/plan_instance.h"

#include <algorithm>

#include "tutti/base/team.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// A core works on this much for about as long as a message takes.
constexpr int64_t kLongBytes = 1 << 20;

// Does it work on much memory? What only the run can tell the size of counts nothing.
bool IsLong(const Node& node) {
  const OpDef& op = node.def();
  if (op.source || op.transfer || op.view || op.async) return false;
  int64_t bytes = 0;
  const auto add = [&bytes](const Output& value) {
    if (!value.shape().IsFullyKnown()) return;
    bytes += std::min(value.shape().elements(), kLongBytes) * int64_t(SizeOf(value.dtype()));
  };
  for (const Output& input : node.inputs()) add(input);
  for (int i = 0; i < node.num_outputs(); ++i) add(node.output(i));
  return bytes >= kLongBytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanInstance>> PlanInstance::Make(const StepPlan& plan) {
  // oneDNN divides a primitive's work among as many threads as the one that creates it may use.
  TeamScope team(plan.device->team());
  std::unique_ptr<PlanInstance> instance(new PlanInstance(plan));
  TUTTI_RETURN_IF_ERROR(instance->AllocateArenas());
  TUTTI_RETURN_IF_ERROR(instance->MakeKernels());
  instance->MakeNodes();
  return instance;
}

absl::Status PlanInstance::AllocateArenas() {
  for (const ArenaSpec& arena : plan_.arenas) {
    Allocator* allocator = plan_.device->allocator(arena.kind);
    if (allocator == nullptr) {
      return FailedPrecondition(
          "{} needs memory of kind \"{}\", which {} does not have: this session has no "
          "communicator; "
          "collectives need one (--strategy allreduce, or SessionOptions::communicator)",
          arena.name, arena.kind, plan_.device->name());
    }
    arenas_.push_back(allocator->Allocate(arena.bytes));
    if (!arenas_.back()) {
      return ResourceExhausted("not enough memory for a step that needs {} bytes on {}",
                               arena.bytes, plan_.device->name());
    }
  }
  values_.resize(plan_.values.size());
  for (uint32_t s = 0; s < plan_.values.size(); ++s) {
    const PlanValue& value = plan_.values[s];
    initial_uses_.push_back(value.uses);
    if (value.storage == Storage::kArena) {
      values_[s] = Tensor(value.type.dtype, value.type.shape, arenas_[value.arena], value.offset);
    } else if (value.storage == Storage::kConstant) {
      values_[s] = value.constant;
    } else {
      transient_.push_back(s);
    }
  }
  return absl::OkStatus();
}

absl::Status PlanInstance::MakeKernels() {
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    const PlanNode& node = plan_.nodes[i];
    if (plan_.first_kernels[i] != nullptr) {
      kernels_.push_back(std::move(plan_.first_kernels[i]));
    } else if (node.prepared_early()) {
      size_t scratch_bytes = 0;
      TUTTI_ASSIGN_OR_RETURN(auto kernel, PrepareKernel(plan_, node, &scratch_bytes));
      kernels_.push_back(std::move(kernel));
    } else {
      kernels_.push_back(node.kernel->make());
    }
  }
  return absl::OkStatus();
}

void PlanInstance::MakeNodes() {
  size_t pointers = 0, successors = 0, inputs = 0;
  for (const PlanNode& node : plan_.nodes) {
    pointers += node.inputs.size() + node.outputs.size();
    successors += node.successors.size();
    inputs += node.inputs.size();
  }
  // Contexts point into these, so they must not move.
  pointers_.reserve(pointers);
  successors_.reserve(successors);
  drops_.reserve(inputs);
  nodes_.resize(plan_.nodes.size());
  unknown_.resize(plan_.nodes.size());
  initial_waiting_.resize(plan_.nodes.size());
  initial_ready_.assign((plan_.nodes.size() + 63) / 64, 0);
  outstanding_.assign(initial_ready_.size(), 0);
  for (uint32_t i = 0; i < plan_.nodes.size(); ++i) MakeNode(i);
  waiting_ = initial_waiting_;
  uses_ = initial_uses_;
  ready_ = initial_ready_;
}

void PlanInstance::MakeNode(uint32_t i) {
  const PlanNode& node = plan_.nodes[i];
  const OpDef& def = node.node->def();
  RunNode& run = nodes_[i];
  run.kernel = kernels_[i].get();
  Tensor* const* const inputs = pointers_.data() + pointers_.size();
  for (const uint32_t s : node.inputs) pointers_.push_back(&values_[s]);
  Tensor* const* const outputs = pointers_.data() + pointers_.size();
  for (const uint32_t s : node.outputs) pointers_.push_back(&values_[s]);
  KernelContext& context = run.context;
  context = KernelContext(node.node, {inputs, node.inputs.size()}, {outputs, node.outputs.size()});
  context.index = i;
  context.consumed_outputs = 0;
  for (size_t o = 0; o < std::min<size_t>(node.outputs.size(), 64); ++o) {
    const PlanValue& value = plan_.values[node.outputs[o]];
    if (value.uses > 0 || value.fetched) context.consumed_outputs |= uint64_t{1} << o;
  }
  if (node.scratch_bytes > 0) {
    auto* arena = static_cast<std::byte*>(arenas_[node.scratch_arena]->data());
    context.SetScratch({arena + node.scratch_offset, node.scratch_bytes});
  }
  run.successors = successors_.data() + successors_.size();
  run.successor_count = uint32_t(node.successors.size());
  successors_.insert(successors_.end(), node.successors.begin(), node.successors.end());
  run.drops = drops_.data() + drops_.size();
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const PlanValue& value = plan_.values[node.inputs[k]];
    const bool transient = value.storage == Storage::kPool || value.storage == Storage::kProvided;
    if (transient && !value.fetched && !def.IsVariableInput(int(k)))
      drops_.push_back(node.inputs[k]);
  }
  run.drop_count = uint32_t(drops_.data() + drops_.size() - run.drops);
  if (run.kernel->AsAsync() != nullptr) run.flags |= kAsync;
  if (!node.prepared_early()) {
    run.flags |= kUnknownShapes;
    unknown_[i] = std::make_unique<Unknown>();
  } else if (node.needs_allocation) {
    run.flags |= kNeedsAllocation;
  }
  run.long_running = IsLong(*node.node);
  initial_waiting_[i] = node.waits_for;
  if (node.waits_for == 0) initial_ready_[i / 64] |= uint64_t{1} << (i % 64);
}

void PlanInstance::BeginRun(StepContext* step, Completion* completion) {
  std::copy(initial_waiting_.begin(), initial_waiting_.end(), waiting_.begin());
  std::copy(initial_uses_.begin(), initial_uses_.end(), uses_.begin());
  std::copy(initial_ready_.begin(), initial_ready_.end(), ready_.begin());
  if (nodes_.empty() ||
      (nodes_[0].context.step == step && nodes_[0].context.completion == completion))
    return;
  for (RunNode& node : nodes_) {
    node.context.step = step;
    node.context.completion = completion;
  }
}

void PlanInstance::EndRun() {
  for (const uint32_t s : transient_) values_[s] = Tensor();
}

namespace {

// The output types of a node for the inputs it has now. The op's own shape function tells, in a
// small graph around the node: Constants where it may want to see values, Placeholders for the
// rest.
absl::StatusOr<std::vector<ValueType>> InferNow(const Node& node, const KernelContext& context) {
  constexpr int64_t kMostShapeElements = 64;
  Graph around;
  NodeSpec spec = node.spec();
  spec.control_inputs.clear();
  for (int k = 0; k < context.num_inputs(); ++k) {
    if (node.def().IsVariableInput(k)) continue;  // it has no value; its declaration tells
    const Tensor& value = context.input(k);
    NodeSpec input;
    const bool small_integers = (value.dtype() == kInt32 || value.dtype() == kInt64) &&
                                value.elements() <= kMostShapeElements;
    if (small_integers) {
      input.op = "Constant";
      input.attrs = {{"value", value}};
    } else {
      input.op = "Placeholder";
      input.attrs = {{"dtype", value.dtype()}, {"shape", value.shape()}};
    }
    TUTTI_ASSIGN_OR_RETURN(Node * made, AddNode(around, std::move(input)));
    spec.inputs[k] = made->output();
  }
  std::vector<ValueType> outputs;
  InferContext infer(node.def(), spec, outputs);
  TUTTI_RETURN_IF_ERROR(node.def().infer(infer));
  return outputs;
}

}  // namespace

absl::Status PlanInstance::PrepareToRun(uint32_t i) {
  if (nodes_[i].flags & kUnknownShapes) return PrepareUnknown(i);
  const PlanNode& node = plan_.nodes[i];
  for (const uint32_t s : node.outputs) {
    const PlanValue& value = plan_.values[s];
    if (value.storage != Storage::kPool || !value.type.shape.IsFullyKnown()) continue;
    TUTTI_ASSIGN_OR_RETURN(values_[s],
                           plan_.device->pool().Allocate(value.type.dtype, value.type.shape));
  }
  return absl::OkStatus();
}

absl::Status PlanInstance::PrepareUnknown(uint32_t i) {
  const PlanNode& node = plan_.nodes[i];
  KernelContext& context = nodes_[i].context;
  Unknown& unknown = *unknown_[i];
  std::vector<ValueType> inputs;
  for (int k = 0; k < context.num_inputs(); ++k) {
    inputs.push_back({context.input(k).dtype(), context.input(k).shape()});
  }
  TUTTI_ASSIGN_OR_RETURN(std::vector<ValueType> outputs, InferNow(*node.node, context));
  if (!unknown.prepared || inputs != unknown.inputs || outputs != unknown.outputs) {
    unknown.prepared = false;  // a kernel that fails to be prepared is fit for no shapes at all
    PrepareContext prepare(*node.node, *plan_.device, inputs, outputs);
    TUTTI_RETURN_IF_ERROR(nodes_[i].kernel->Prepare(prepare));
    Tensor scratch;
    if (prepare.scratch_bytes() > 0) {
      TUTTI_ASSIGN_OR_RETURN(
          scratch, plan_.device->pool().Allocate(kUInt8, Shape{int64_t(prepare.scratch_bytes())}));
    }
    context.SetScratch({static_cast<std::byte*>(scratch.raw()), prepare.scratch_bytes()});
    unknown = {std::move(inputs), outputs, std::move(scratch), true};
  }
  if (node.node->def().view || node.node->def().provides_outputs) return absl::OkStatus();
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (!outputs[o].shape.IsFullyKnown()) continue;  // the kernel allocates it
    TUTTI_ASSIGN_OR_RETURN(values_[node.outputs[o]],
                           plan_.device->pool().Allocate(outputs[o].dtype, outputs[o].shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<InstancePool>> InstancePool::Make(std::unique_ptr<StepPlan> plan) {
  std::unique_ptr<InstancePool> pool(new InstancePool(std::move(plan)));
  TUTTI_ASSIGN_OR_RETURN(auto first, PlanInstance::Make(pool->plan()));
  pool->Return(std::move(first));
  return pool;
}

absl::StatusOr<std::unique_ptr<PlanInstance>> InstancePool::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto instance = std::move(idle_.back());
      idle_.pop_back();
      return instance;
    }
  }
  return PlanInstance::Make(*plan_);
}

void InstancePool::Return(std::unique_ptr<PlanInstance> instance) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(instance));
}

}  // namespace tutti
