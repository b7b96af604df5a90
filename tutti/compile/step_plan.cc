// From a program to a StepPlan:
//  1. order    the nodes (order.cc)
//  2. slots    one per output; Placeholders and Constants are slots only, not nodes of the plan
//  3. storage  which values live in an arena, which are views of others, which leave the step
//  4. edges    data, control, and readers before writers of variables
//  5. places   of the arena values (place_values.cc)
#include "tutti/compile/step_plan.h"

#include <algorithm>
#include <charconv>
#include <optional>
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
    inputs.push_back(plan.slots[s].type);
    input_layouts.push_back(plan.slots[s].layout);
  }
  for (const uint32_t s : node.outputs) {
    outputs.push_back(plan.slots[s].type);
    output_layouts.push_back(plan.slots[s].layout);
  }
  auto kernel = node.kernel->make();
  PrepareContext context(*node.node, *plan.device, inputs, outputs, input_layouts, output_layouts);
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

bool IsSource(const Node& node) {
  return node.op() == "Placeholder" || node.op() == "Constant" || node.op() == "Arg";
}

class Planner {
 public:
  Planner(Program program, Device& device)
      : plan_(std::make_unique<StepPlan>()), draft_{*plan_, {}, {}} {
    plan_->device = &device;
    plan_->program = std::move(program);
  }

  absl::StatusOr<std::unique_ptr<StepPlan>> Run() {
    order_ = OrderOf(graph());
    TUTTI_RETURN_IF_ERROR(MakeNodesAndSlots());
    ChooseStorage();
    AddEdges();
    TUTTI_RETURN_IF_ERROR(PlaceValues(draft_));
    return std::move(plan_);
  }

 private:
  const Graph& graph() const { return *plan_->program.graph; }
  uint32_t SlotOf(Output output) const { return slot_.at(output); }

  // What `value` is a view of, in the end.
  static Output Viewed(Output value) {
    while (value.node->def().view) value = value.node->input(0);
    return value;
  }

  absl::Status MakeNodesAndSlots() {
    plan_->arenas.assign(1, {});
    for (const Node* node : order_) {
      TUTTI_RETURN_IF_ERROR(CheckNotes(*node));
      for (int i = 0; i < node->num_outputs(); ++i) {
        slot_[node->output(i)] = uint32_t(plan_->slots.size());
        plan_->slots.push_back({.type = node->type(i), .layout = LayoutOf(*node, i)});
        TUTTI_RETURN_IF_ERROR(CheckSize(*node, i, plan_->slots.back()));
      }
      if (node->op() == "Constant") {
        PlanSlot& slot = plan_->slots[SlotOf(node->output())];
        slot.storage = Storage::kConstant;
        slot.constant = node->attr<Tensor>("value");
      } else if (IsSource(*node)) {
        plan_->slots[SlotOf(node->output())].storage = Storage::kFeed;
      } else {
        TUTTI_RETURN_IF_ERROR(MakeNode(*node));
      }
    }
    for (const Output& feed : plan_->program.feeds) plan_->feeds.push_back(SlotOf(feed));
    for (const Output& fetch : plan_->program.fetches) {
      plan_->fetches.push_back(SlotOf(fetch));
      plan_->slots[SlotOf(fetch)].fetched = true;
    }
    return absl::OkStatus();
  }

  // Kernels are prepared for the size of every value, whether it gets memory or not.
  static absl::Status CheckSize(const Node& node, int output, const PlanSlot& slot) {
    if (!slot.type.shape.IsFullyKnown()) return absl::OkStatus();
    if (slot.layout.Bytes(slot.type.dtype, slot.type.shape) <= kMostBytes) return absl::OkStatus();
    return ResourceExhausted("{}: output {}, {} {}, has more than {} bytes; no memory holds it",
                             node.Describe(), output, NameOf(slot.type.dtype),
                             slot.type.shape.ToString(), kMostBytes);
  }

  // Notes are declared nowhere, so nobody has checked them.
  static absl::Status CheckNotes(const Node& node) {
    for (const auto& [note, type] :
         {std::pair("_output_layouts", AttrType::kStrings),
          std::pair("_pinned", AttrType::kStrings), std::pair("_arena_kind", AttrType::kString)}) {
      const AttrValue* value = FindAttr(node.attrs(), note);
      if (value == nullptr || TypeOf(*value) == type) continue;
      return InvalidArgument("{}: the note \"{}\" is a {}; expected {}", node.Describe(), note,
                             NameOf(TypeOf(*value)), NameOf(type));
    }
    for (const std::string& pin : PinsOf(node)) {
      if (pin.empty()) continue;
      const auto offset = OffsetOf(pin);
      if (!offset || *offset % kBufferAlignment != 0) {
        return InvalidArgument(
            "{}: a value is pinned at \"{}\"; expected \"arena@offset\" with a multiple of {}",
            node.Describe(), pin, kBufferAlignment);
      }
    }
    return absl::OkStatus();
  }

  // Of a pin "arena@offset"; nullopt when it is none.
  static std::optional<size_t> OffsetOf(const std::string& pin) {
    const size_t at = pin.rfind('@');
    if (at == std::string::npos) return std::nullopt;
    size_t offset = 0;
    const char* const end = pin.data() + pin.size();
    const auto [stop, error] = std::from_chars(pin.data() + at + 1, end, offset);
    if (error != std::errc() || stop != end) return std::nullopt;
    return offset;
  }

  static Layout LayoutOf(const Node& node, int output) {
    const AttrValue* layouts = node.FindAttr("_output_layouts");
    if (layouts == nullptr) return {};
    const auto& tags = std::get<std::vector<std::string>>(*layouts);
    return size_t(output) < tags.size() ? Layout(tags[output]) : Layout();
  }

  absl::Status MakeNode(const Node& node) {
    PlanNode made;
    made.node = &node;
    made.kernel =
        KernelRegistry::Global().Find(node.op(), plan_->device->type(), KernelDType(node));
    if (made.kernel == nullptr) {
      return Unimplemented("{} has no kernel for {} on {}; kernels there are: {}", node.Describe(),
                           NameOf(KernelDType(node)), plan_->device->name(),
                           KernelRegistry::Global().Describe(node.op()));
    }
    for (int i = 0; i < node.num_inputs(); ++i) {
      const uint32_t slot = SlotOf(node.input(i));
      made.inputs.push_back(slot);
      made.shapes_known = made.shapes_known && node.input(i).shape().IsFullyKnown();
      if (!node.def().IsVariableInput(i)) ++plan_->slots[slot].uses;
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      made.outputs.push_back(SlotOf(node.output(i)));
      made.shapes_known = made.shapes_known && node.type(i).shape.IsFullyKnown();
    }
    plan_->has_async = plan_->has_async || node.def().async;
    plan_->nodes.push_back(std::move(made));
    return absl::OkStatus();
  }

  // A value goes into the arena when its size is known and its kernel writes into memory it is
  // given. A view of an arena value is that value under another shape and needs no run. What the
  // client, another device or a subgraph may hold for longer than the step, and whatever it is a
  // view of, comes from the pool.
  void ChooseStorage() {
    draft_.root.resize(plan_->slots.size());
    for (uint32_t s = 0; s < draft_.root.size(); ++s) draft_.root[s] = s;
    std::vector<bool> leaves(plan_->slots.size(), false);
    for (const uint32_t fetch : plan_->fetches) leaves[fetch] = true;
    for (auto it = plan_->nodes.rbegin(); it != plan_->nodes.rend(); ++it) {
      if (it->node->def().view && leaves[it->outputs[0]]) leaves[it->inputs[0]] = true;
      if (it->node->op() == "Send" || it->node->def().async) {
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
      PlanSlot& out = plan_->slots[node.outputs[0]];
      const PlanSlot& in = plan_->slots[node.inputs[0]];
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
      const PlanSlot& value = plan_->slots[node.outputs[0]];
      return value.uses > 0 || value.fetched;
    }
    if (def.provides_outputs) return true;
    const std::vector<std::string> pins = PinsOf(*node.node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const uint32_t s = node.outputs[i];
      PlanSlot& slot = plan_->slots[s];
      const bool pinned = i < pins.size() && !pins[i].empty();
      slot.storage = node.shapes_known && !def.async && (pinned || !leaves[s]) ? Storage::kArena
                                                                               : Storage::kPool;
      if (slot.storage == Storage::kPool) node.needs_allocation = true;
      if (pinned && slot.storage == Storage::kArena) Pin(slot, *node.node, pins[i]);
    }
    return true;
  }

  // Where the outputs of a node have to lie: "arena@offset" for each, empty for anywhere.
  static std::vector<std::string> PinsOf(const Node& node) {
    const AttrValue* pins = node.FindAttr("_pinned");
    return pins == nullptr ? std::vector<std::string>() : std::get<std::vector<std::string>>(*pins);
  }

  void Pin(PlanSlot& slot, const Node& node, const std::string& pin) {
    const AttrValue* kind = node.FindAttr("_arena_kind");
    slot.arena = ArenaNamed(pin.substr(0, pin.rfind('@')),
                            kind == nullptr ? "" : std::get<std::string>(*kind));
    slot.offset = *OffsetOf(pin);
  }

  int ArenaNamed(const std::string& name, const std::string& kind) {
    for (size_t i = 1; i < plan_->arenas.size(); ++i) {
      if (plan_->arenas[i].name == name) return int(i);
    }
    plan_->arenas.push_back({name, kind, 0});
    return int(plan_->arenas.size() - 1);
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
  std::unordered_map<Output, uint32_t, OutputHash> slot_;
  std::unordered_map<const Node*, uint32_t> node_of_;
  std::unordered_map<const Node*, const Node*> elided_;  // views without a run -> what they view
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepPlan>> MakeStepPlan(Program program, Device& device) {
  return Planner(std::move(program), device).Run();
}

}  // namespace tutti
