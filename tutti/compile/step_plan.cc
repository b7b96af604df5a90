// From a program to a StepPlan:
//  1. order    the nodes (order.cc)
//  2. values   one per output; Placeholders and Constants are values only, not nodes of the plan
//  3. storage  which values live in an arena, which are views of others, which leave the step
//  4. edges    data, control, and readers before writers of variables
//  5. places   of the arena values (place_values.cc)
#include "tutti/compile/step_plan.h"

#include <algorithm>
#include <unordered_map>

#include "tutti/compile/order.h"
#include "tutti/compile/plan_draft.h"
#include "tutti/device/memory_limit.h"
#include "tutti/graph/op_def.h"

namespace tutti {

size_t StepPlan::arena_bytes() const {
  size_t total = 0;
  for (const ArenaSpec& arena : arenas) total += arena.bytes;
  return total;
}

bool PlanNode::prepared_early() const {
  const OpDef& def = node->def();
  return shapes_known || def.async || def.provides_outputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareKernel(const StepPlan& plan, const PlanNode& node,
                                                      size_t* scratch_bytes) {
  std::vector<ValueType> inputs, outputs;
  std::vector<Layout> input_layouts, output_layouts;
  for (const uint32_t s : node.inputs) {
    inputs.push_back(plan.values[s].type);
    input_layouts.push_back(plan.values[s].layout);
  }
  for (const uint32_t s : node.outputs) {
    outputs.push_back(plan.values[s].type);
    output_layouts.push_back(plan.values[s].layout);
  }
  auto kernel = node.kernel->make();
  PrepareContext context(*node.node, *plan.device, inputs, outputs, input_layouts, output_layouts);
  context.SetInputsJoined(node.inputs_joined);
  absl::Status status;
  try {
    status = kernel->Prepare(context);
  } catch (...) {
    status = StatusFromCurrentException();  // libraries throw
  }
  if (!status.ok()) return WithPrefix(status, node.node->Describe() + ": ");
  *scratch_bytes = context.scratch_bytes();
  return kernel;
}

namespace {

class Planner {
 public:
  Planner(Program program, Device& device)
      : plan_(std::make_unique<StepPlan>()), draft_{*plan_, {}, {}} {
    plan_->device = &device;
    plan_->program = std::move(program);
  }

  absl::StatusOr<std::unique_ptr<StepPlan>> Run() {
    order_ = OrderOf(graph());
    TUTTI_RETURN_IF_ERROR(MakeNodesAndValues());
    ChooseStorage();
    AddEdges();
    TUTTI_RETURN_IF_ERROR(PlaceValues(draft_));
    return std::move(plan_);
  }

 private:
  const Graph& graph() const { return *plan_->program.graph; }
  const MemoryTable& memory() const { return plan_->program.memory; }
  uint32_t ValueOf(Output output) const { return value_.at(output); }

  // What `value` is a view of, in the end.
  static Output Viewed(Output value) {
    while (value.node->def().view) value = value.node->input(0);
    return value;
  }

  absl::Status MakeNodesAndValues() {
    plan_->arenas.assign(1, {});
    for (const Node* node : order_) {
      for (int i = 0; i < node->num_outputs(); ++i) {
        value_[node->output(i)] = uint32_t(plan_->values.size());
        plan_->values.push_back(
            {.type = node->type(i), .layout = memory().LayoutOf(node->output(i))});
        TUTTI_RETURN_IF_ERROR(CheckSize(*node, i, plan_->values.back()));
        TUTTI_RETURN_IF_ERROR(CheckPin(*node, i));
      }
      if (node->op() == "Constant") {
        PlanValue& value = plan_->values[ValueOf(node->output())];
        value.storage = Storage::kConstant;
        value.constant = node->attr<Tensor>("value");
      } else if (node->def().source) {
        plan_->values[ValueOf(node->output())].storage = Storage::kFeed;
      } else {
        TUTTI_RETURN_IF_ERROR(MakeNode(*node));
      }
    }
    for (const Output& feed : plan_->program.feeds) plan_->feeds.push_back(ValueOf(feed));
    for (const Output& fetch : plan_->program.fetches) {
      plan_->fetches.push_back(ValueOf(fetch));
      plan_->values[ValueOf(fetch)].fetched = true;
    }
    return absl::OkStatus();
  }

  // Kernels are prepared for the size of every value, whether it gets memory or not.
  static absl::Status CheckSize(const Node& node, int output, const PlanValue& value) {
    if (!value.type.shape.IsFullyKnown()) return absl::OkStatus();
    if (value.layout.Bytes(value.type.dtype, value.type.shape) <= kMostBytes)
      return absl::OkStatus();
    return ResourceExhausted("{}: output {}, {} {}, has more than {} bytes; no memory holds it",
                             node.Describe(), output, NameOf(value.type.dtype),
                             value.type.shape.ToString(), kMostBytes);
  }

  // The table may have come from another process.
  absl::Status CheckPin(const Node& node, int output) const {
    const Pin* pin = memory().PinOf(node.output(output));
    if (pin == nullptr) return absl::OkStatus();
    const int arenas = int(memory().arenas.size());
    if (pin->arena < 0 || pin->arena >= arenas) {
      return InvalidArgument("{}: output {} is pinned into arena {}; the program has {}",
                             node.Describe(), output, pin->arena, arenas);
    }
    if (pin->offset % kBufferAlignment != 0 || pin->offset > kMostBytes) {
      return InvalidArgument(
          "{}: output {} is pinned at offset {} of \"{}\"; expected a multiple of {}, at most {}",
          node.Describe(), output, pin->offset, memory().arenas[size_t(pin->arena)].name,
          kBufferAlignment, kMostBytes);
    }
    return absl::OkStatus();
  }

  absl::Status MakeNode(const Node& node) {
    PlanNode made;
    made.node = &node;
    made.inputs_joined = memory().joined_buckets.contains(node.id());
    made.kernel =
        KernelRegistry::Global().Find(node.op(), plan_->device->type(), KernelDType(node));
    if (made.kernel == nullptr) {
      return Unimplemented("{} has no kernel for {} on {}; kernels there are: {}", node.Describe(),
                           NameOf(KernelDType(node)), plan_->device->name(),
                           KernelRegistry::Global().Describe(node.op()));
    }
    for (int i = 0; i < node.num_inputs(); ++i) {
      const uint32_t value = ValueOf(node.input(i));
      made.inputs.push_back(value);
      made.shapes_known = made.shapes_known && node.input(i).shape().IsFullyKnown();
      if (!node.def().IsVariableInput(i)) ++plan_->values[value].uses;
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      made.outputs.push_back(ValueOf(node.output(i)));
      made.shapes_known = made.shapes_known && node.type(i).shape.IsFullyKnown();
    }
    plan_->has_async = plan_->has_async || node.def().async;
    plan_->nodes.push_back(std::move(made));
    return absl::OkStatus();
  }

  // A value goes into the arena when its size is known and its kernel writes into memory it is
  // given. A view of an arena value is that value under another shape and needs no run. What the
  // client, another device or a subgraph may hold for longer than the step, and whatever it is a
  // view of, comes from the pool; so does what a view of unknown shape shows.
  void ChooseStorage() {
    draft_.root.resize(plan_->values.size());
    for (uint32_t s = 0; s < draft_.root.size(); ++s) draft_.root[s] = s;
    std::vector<bool> leaves(plan_->values.size(), false);
    for (const uint32_t fetch : plan_->fetches) leaves[fetch] = true;
    for (auto it = plan_->nodes.rbegin(); it != plan_->nodes.rend(); ++it) {
      // A view whose shape only the run can tell holds what it shows for as long as it is read.
      const bool view = it->node->def().view;
      const bool sized = view && plan_->values[it->outputs[0]].type.shape.IsFullyKnown();
      if (view && (!sized || leaves[it->outputs[0]])) leaves[it->inputs[0]] = true;
      if (it->node->def().may_keep_inputs()) {
        for (const uint32_t input : it->inputs) leaves[input] = true;
      }
    }
    std::vector<PlanNode> kept;
    for (PlanNode& node : plan_->nodes) {
      if (StoreOutputs(node, leaves)) kept.push_back(std::move(node));
    }
    plan_->nodes = std::move(kept);
    for (uint32_t i = 0; i < plan_->nodes.size(); ++i) node_of_[plan_->nodes[i].node] = i;
  }

  // False when the node is a view that needs no run.
  bool StoreOutputs(PlanNode& node, const std::vector<bool>& leaves) {
    const OpDef& def = node.node->def();
    if (def.view) {
      PlanValue& out = plan_->values[node.outputs[0]];
      const PlanValue& in = plan_->values[node.inputs[0]];
      const bool fixed = in.storage == Storage::kArena || in.storage == Storage::kConstant;
      if (!fixed || !out.type.shape.IsFullyKnown() || out.fetched) return true;  // kProvided
      draft_.root[node.outputs[0]] = draft_.root[node.inputs[0]];
      out.storage = in.storage;
      elided_[node.node] = node.node->input(0).node;
      return false;
    }
    if (node.node->op() == "Variable") {
      // Updates name the variable but do not read it: a value that nobody reads would only force a
      // copy.
      const PlanValue& value = plan_->values[node.outputs[0]];
      return value.uses > 0 || value.fetched;
    }
    if (def.provides_outputs) return true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const uint32_t s = node.outputs[i];
      PlanValue& value = plan_->values[s];
      const Pin* pin = memory().PinOf(node.node->output(int(i)));
      value.storage = node.shapes_known && !def.async && (pin != nullptr || !leaves[s])
                          ? Storage::kArena
                          : Storage::kPool;
      if (value.storage == Storage::kPool) node.needs_allocation = true;
      if (pin != nullptr && value.storage == Storage::kArena) {
        value.arena = PlanArena(pin->arena);
        value.offset = pin->offset;
      }
    }
    return true;
  }

  // The plan's arena for one of the table's. Those that nobody uses take no memory.
  int PlanArena(int pinned) {
    const PinnedArena& wanted = memory().arenas[size_t(pinned)];
    const auto [it, added] = arena_of_.try_emplace(pinned, int(plan_->arenas.size()));
    if (added) plan_->arenas.push_back({wanted.name, wanted.kind, 0});
    return it->second;
  }

  // Edges from `before`, or from what it stands for when it needs no run: the value that a view
  // shows, and the control inputs of the views between.
  void WaitFor(const Node* before, uint32_t to) {
    for (;;) {
      const auto it = elided_.find(before);
      if (it == elided_.end()) break;
      for (const Node* control : before->control_inputs()) {
        if (const auto at = node_of_.find(control); at != node_of_.end())
          draft_.AddEdge(at->second, to);
      }
      before = it->second;
    }
    if (const auto at = node_of_.find(before); at != node_of_.end()) draft_.AddEdge(at->second, to);
  }

  void AddEdges() {
    for (uint32_t i = 0; i < plan_->nodes.size(); ++i) {
      const Node& node = *plan_->nodes[i].node;
      for (const Output& input : node.inputs()) WaitFor(input.node, i);
      for (const Node* control : node.control_inputs()) WaitFor(control, i);
    }
    OrderVariableAccess();
  }

  // Readers that were built before an update run before it, so that it can work in place; updates
  // of one variable run in the order in which they were built. Any other reader holds a reference
  // to the old value, and the update then works on a copy.
  void OrderVariableAccess() {
    std::unordered_map<Output, std::vector<uint32_t>, OutputHash> readers;
    std::unordered_map<Output, uint32_t, OutputHash> last_update;
    std::vector<uint32_t> by_id(plan_->nodes.size());
    for (uint32_t i = 0; i < by_id.size(); ++i) by_id[i] = i;
    std::sort(by_id.begin(), by_id.end(), [&](uint32_t a, uint32_t b) {
      return plan_->nodes[a].node->id() < plan_->nodes[b].node->id();
    });
    for (const uint32_t i : by_id) {
      const Node& node = *plan_->nodes[i].node;
      for (int k = 0; k < node.num_inputs(); ++k) {
        Output input = node.input(k);
        if (node.def().IsVariableInput(k) && node.def().reads_references) {
          readers[input].push_back(i);
          continue;
        }
        if (node.def().IsVariableInput(k)) {
          for (const uint32_t reader : readers[input]) draft_.AddEdge(reader, i);
          if (const auto it = last_update.find(input); it != last_update.end())
            draft_.AddEdge(it->second, i);
          last_update[input] = i;
          continue;
        }
        input = Viewed(input);  // a view of a variable reads it too
        if (input.node->op() == "Variable") readers[input].push_back(i);
      }
    }
  }

  std::unique_ptr<StepPlan> plan_;
  PlanDraft draft_;
  std::vector<const Node*> order_;
  std::unordered_map<Output, uint32_t, OutputHash> value_;
  std::unordered_map<const Node*, uint32_t> node_of_;
  std::unordered_map<int, int> arena_of_;                // arenas of the table -> of the plan
  std::unordered_map<const Node*, const Node*> elided_;  // views without a run -> what they view
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepPlan>> MakeStepPlan(Program program, Device& device) {
  return Planner(std::move(program), device).Run();
}

}  // namespace tutti
