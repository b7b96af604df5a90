// Runs, once and now, what would give the same value in every step: nodes whose inputs are all
// Constants, by the kernels that the step would use: those of the context's folding device, for
// nodes that were placed on a device of the same type. Other nodes are left for the step. Shape,
// Rank and Size need no value, only a known shape. A kernel that fails here (a division by zero) is
// left in the program, so that the error comes from the run, with the node's name, and only if the
// node does run.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "tutti/base/cancellation.h"
#include "tutti/base/team.h"
#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// A folded value may be larger than what it is made of (a Fill), but not by much: it stays in
// memory as long as the plan.
constexpr size_t kMostBytes = size_t{1} << 20;

// The outputs of one node on constant inputs.
class OneNode {
 public:
  OneNode(Device& device, const Node& node) : device_(device), node_(node) {}

  // nullopt when it is not to be folded or has no kernel that works.
  std::optional<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs) {
    NodeSpec spec;
    spec.op = node_.op();
    spec.attrs = node_.attrs();
    size_t input_bytes = 0;
    for (const Tensor& input : inputs) {
      const auto constant = AddNode(graph_, {.op = "Constant", .attrs = {{"value", input}}});
      if (!constant.ok()) return std::nullopt;
      spec.inputs.push_back((*constant)->output());
      input_bytes += input.bytes();
    }
    const auto added = AddNode(graph_, std::move(spec));
    if (!added.ok() || !FitsInto(**added, std::max(input_bytes, kMostBytes))) return std::nullopt;
    std::vector<Tensor> outputs;
    if (!Compute(**added, inputs, outputs).ok()) return std::nullopt;
    return outputs;
  }

 private:
  static bool FitsInto(const Node& node, size_t most_bytes) {
    size_t bytes = 0;
    for (int i = 0; i < node.num_outputs(); ++i) {
      const ValueType& type = node.type(i);
      if (!type.shape.IsFullyKnown()) return false;
      const size_t elements = size_t(type.shape.elements());
      if (elements > most_bytes) return false;
      bytes += elements * SizeOf(type.dtype);
      if (bytes > most_bytes) return false;
    }
    return true;
  }

  absl::Status Compute(const Node& node, std::vector<Tensor> inputs, std::vector<Tensor>& outputs) {
    const KernelDef* def =
        KernelRegistry::Global().Find(node.op(), device_.type(), KernelDType(node));
    if (def == nullptr) return NotFound("no kernel");
    const std::unique_ptr<Kernel> kernel = def->make();
    if (kernel->AsAsync() != nullptr) return Unimplemented("asynchronous");
    std::vector<ValueType> input_types, output_types;
    for (const Output& input : node.inputs()) input_types.push_back(input.node->type(input.index));
    for (int i = 0; i < node.num_outputs(); ++i) output_types.push_back(node.type(i));
    PrepareContext prepare(node, device_, input_types, output_types);
    const TeamScope team(device_.team());
    TUTTI_RETURN_IF_ERROR(kernel->Prepare(prepare));

    for (const ValueType& type : output_types) outputs.emplace_back(type.dtype, type.shape);
    const auto input_pointers = PointersTo(inputs), output_pointers = PointersTo(outputs);
    Tensor scratch(kUInt8, Shape{int64_t(prepare.scratch_bytes())});
    Cancellation cancellation;
    StepContext step;
    step.cancellation = &cancellation;
    step.device = &device_;
    KernelContext context(&node, input_pointers, output_pointers,
                          {static_cast<std::byte*>(scratch.raw()), scratch.bytes()});
    context.step = &step;
    return kernel->Compute(context);
  }

  Device& device_;
  const Node& node_;
  Graph graph_;
};

// The value of Shape, Rank and Size when the shape of their input, in the copy, tells it.
std::optional<Tensor> ShapeValue(const Node& node, const Shape& shape) {
  std::vector<int64_t> values;
  if (node.op() == "Shape" && shape.IsFullyKnown()) {
    values.assign(shape.dims().begin(), shape.dims().end());
  } else if (node.op() == "Rank" && shape.has_rank()) {
    values = {shape.rank()};
  } else if (node.op() == "Size" && shape.IsFullyKnown()) {
    values = {shape.elements()};
  } else {
    return std::nullopt;
  }
  Tensor tensor(node.type(0).dtype, node.op() == "Shape" ? Shape{int64_t(values.size())} : Shape{});
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype() == kInt64) {
      tensor.data<int64_t>()[i] = values[i];
    } else if (values[i] <= std::numeric_limits<int32_t>::max()) {
      tensor.data<int32_t>()[i] = int32_t(values[i]);
    } else {
      return std::nullopt;  // the kernel tells
    }
  }
  return tensor;
}

class Folder {
 public:
  Folder(const Program& program, Device* folding)
      : program_(program),
        folding_(folding),
        copy_(program),
        targets_(program.targets.begin(), program.targets.end()),
        effects_(program.graph->nodes().size()) {}

  absl::StatusOr<Program> Run(const PassContext& context) {
    for (const auto& node : program_.graph->nodes()) {
      effects_[size_t(node->id())] = HasEffectsBefore(*node);
      TUTTI_ASSIGN_OR_RETURN(const bool folded, Fold(*node));
      changed_ |= folded;
      if (!folded) TUTTI_RETURN_IF_ERROR(copy_.Copy(*node).status());
    }
    TUTTI_ASSIGN_OR_RETURN(Program result, copy_.Finish());
    if (!changed_) return result;
    return Prune(std::move(result), context);
  }

 private:
  // Does the node, or one that it waits for, have effects?
  bool HasEffectsBefore(const Node& node) const {
    if (node.def().has_effects()) return true;
    for (const Output& input : node.inputs()) {
      if (effects_[size_t(input.node->id())]) return true;
    }
    for (const Node* control : node.control_inputs()) {
      if (effects_[size_t(control->id())]) return true;
    }
    return false;
  }

  absl::StatusOr<bool> Fold(const Node& node) {
    if (node.num_inputs() == 0 || !node.control_inputs().empty() || !IsPure(node)) return false;
    const Output first = copy_.Mapped(node.input(0));
    if (node.num_inputs() == 1 && node.num_outputs() == 1) {
      // What has effects must run even if only the shape of its result is asked for.
      const auto value = effects_[size_t(node.input(0).node->id())]
                             ? std::nullopt
                             : ShapeValue(node, first.shape());
      if (value) return Replace(node, {*value}, {first.node});
    }
    std::vector<Tensor> inputs;
    for (const Output& input : node.inputs()) {
      const Tensor* value = ConstantOf(copy_.Mapped(input));
      if (value == nullptr) return false;
      inputs.push_back(*value);
    }
    if (folding_ == nullptr || DeviceTypeOf(node) != folding_->type()) return false;
    auto outputs = OneNode(*folding_, node).Run(inputs);
    if (!outputs) return false;
    return Replace(node, *std::move(outputs), {});
  }

  // Whoever ran after the node runs after `control`.
  absl::StatusOr<bool> Replace(const Node& node, std::vector<Tensor> values,
                               std::vector<const Node*> control) {
    for (int i = 0; i < node.num_outputs(); ++i) {
      NodeSpec spec;
      spec.op = "Constant";
      spec.name = i == 0 ? node.name() : FreeName(fmt::format("{}.{}", node.name(), i));
      spec.attrs = {{"value", std::move(values[size_t(i)])}};
      spec.device = node.device();
      spec.where = node.where();
      TUTTI_ASSIGN_OR_RETURN(const Node* constant, AddNode(copy_.to(), std::move(spec)));
      copy_.Map(node.output(i), constant->output());
    }
    // A target must have something to stand for it.
    if (targets_.contains(&node)) control.push_back(copy_.Mapped(node.output()).node);
    copy_.MapControl(node, std::move(control));
    return true;
  }

  std::string FreeName(std::string name) const {
    while (program_.graph->Find(name) != nullptr) name += '_';
    return name;
  }

  const Program& program_;
  Device* const folding_;
  ProgramCopy copy_;
  std::unordered_set<const Node*> targets_;
  std::vector<bool> effects_;
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Program> FoldConstants(Program program, const PassContext& context) {
  return Folder(program, context.folding).Run(context);
}

}  // namespace tutti
