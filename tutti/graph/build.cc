// Adding a node: check the name, resolve captures, check the signature, infer the types, and only
// then let the graph own it. A node that fails leaves the graph as it was.
#include "tutti/graph/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "tutti/graph/number.h"
#include "tutti/graph/op_def.h"

namespace tutti {

namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '/';
}

absl::Status CheckName(std::string_view name) {
  if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter) ||
      name.front() == '/' || name.front() == '-') {
    return InvalidArgument(
        "\"{}\" is no node name: expected letters, digits and any of _ . - / with neither / nor - "
        "in front",
        name);
  }
  return absl::OkStatus();
}

std::string Place(const NodeSpec& spec) {
  const std::string_view file = spec.where.file_name();
  if (file.empty()) return "";
  const size_t slash = file.rfind('/');
  return fmt::format(" ({}:{})", slash == std::string_view::npos ? file : file.substr(slash + 1),
                     spec.where.line());
}

absl::Status CheckAttrs(const OpDef& def, const AttrList& attrs) {
  for (const auto& [name, value] : attrs) {
    if (name.starts_with('_')) continue;  // notes of compiler passes
    const AttrDef* declared = def.FindAttr(name);
    if (declared == nullptr) return InvalidArgument("the op has no attribute \"{}\"", name);
    if (declared->type != TypeOf(value)) {
      return InvalidArgument("attribute \"{}\" is a {}; expected {}", name, NameOf(TypeOf(value)),
                             NameOf(declared->type));
    }
  }
  for (const AttrDef& declared : def.attrs) {
    if (!declared.default_value && FindAttr(attrs, declared.name) == nullptr) {
      return InvalidArgument("attribute \"{}\" ({}) is missing", declared.name,
                             NameOf(declared.type));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const OpDef& def, const NodeSpec& spec) {
  const int given = int(spec.inputs.size());
  const int fixed = def.fixed_inputs();
  if (given < fixed || (given > fixed && !def.variadic())) {
    return InvalidArgument("{} inputs given; expected {}{}", given,
                           def.variadic() ? "at least " : "", fixed);
  }
  if (def.variadic()) {
    const std::string& group = def.inputs.back();
    const int size = 1 + int(std::count(group.begin(), group.end(), ','));
    if ((given - fixed) % size != 0) {
      return InvalidArgument("{} inputs given; expected {} and groups of {}", given, fixed, size);
    }
  }
  for (int i = 0; i < given; ++i) {
    if (!def.IsVariableInput(i)) continue;
    const Node& referred = *spec.inputs[i].node;
    if (def.refers_to.empty()) {
      if (referred.op() == "Variable" || referred.op() == "Arg") continue;
      return InvalidArgument("{} must be a Variable, got {}", def.InputName(i),
                             referred.Describe());
    }
    if (std::find(def.refers_to.begin(), def.refers_to.end(), referred.op()) !=
        def.refers_to.end()) {
      continue;
    }
    return InvalidArgument("{} must be a {}, got {}{}", def.InputName(i),
                           fmt::join(def.refers_to, " or "), referred.Describe(),
                           referred.op() == "Arg" ? "; it cannot be used inside If or While" : "");
  }
  return absl::OkStatus();
}

}  // namespace

// Has access to the graph's parts while a node is added.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  absl::StatusOr<Node*> Add(NodeSpec spec) {
    const OpDef* def = OpRegistry::Global().Find(spec.op);
    if (def == nullptr) return NotFound("there is no op \"{}\"{}", spec.op, Place(spec));
    TUTTI_RETURN_IF_ERROR(ChooseName(spec));
    const absl::Status status = Complete(*def, spec);
    if (!status.ok()) return Explain(status, spec);
    std::vector<ValueType> outputs;
    InferContext context(*def, spec, outputs);
    if (const absl::Status inferred = Infer(*def, context); !inferred.ok())
      return Explain(inferred, spec);
    return Own(*def, std::move(spec), std::move(outputs));
  }

  // Takes out the nodes from id `size` on. What the first of them has below its name ("w/initial"
  // of "w") is free again, so that a second attempt gets the same names, and with them the same
  // random numbers.
  void RemoveFrom(int64_t size) {
    if (graph_.size() <= size) return;
    const std::string root = graph_.nodes_[size_t(size)]->name();
    for (size_t i = size_t(size); i < graph_.nodes_.size(); ++i) {
      graph_.by_name_.erase(graph_.nodes_[i]->name());
    }
    graph_.nodes_.resize(size_t(size));
    std::erase_if(graph_.name_counts_, [&](const auto& entry) {
      return entry.first == root || entry.first.starts_with(root + "/");
    });
    for (const auto& node : graph_.nodes_) {
      const std::string& name = node->name();
      if (!name.starts_with(root + "/")) continue;
      for (size_t end = root.size(); end != name.npos; end = name.find('/', end + 1)) {
        graph_.name_counts_.try_emplace(name.substr(0, end), 1);
      }
      graph_.name_counts_.try_emplace(name, 1);
    }
  }

 private:
  // Shape's constructor throws when a product of dimensions passes 2^63.
  static absl::Status Infer(const OpDef& def, InferContext& context) {
    try {
      return def.infer(context);
    } catch (...) {
      return StatusFromCurrentException();
    }
  }

  absl::Status ChooseName(NodeSpec& spec) {
    if (spec.name.empty()) {
      spec.name = graph_.UniqueName(spec.op);
      return absl::OkStatus();
    }
    const std::string full = graph_.name_scope_ + spec.name;
    if (const absl::Status status = CheckName(full); !status.ok()) {
      return WithPrefix(status, fmt::format("{}{}: ", spec.op, Place(spec)));
    }
    if (const Node* other = graph_.Find(full)) {
      return AlreadyExists("{} \"{}\"{}: the name is taken by {}; give one of them another name",
                           spec.op, full, Place(spec), other->Describe());
    }
    spec.name = full;
    graph_.name_counts_.try_emplace(full, 1);
    return absl::OkStatus();
  }

  absl::Status Complete(const OpDef& def, NodeSpec& spec) {
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      const Output& input = spec.inputs[i];
      if (!input) return InvalidArgument("input {} is empty (default-constructed)", i);
      if (input.index < 0 || input.index >= input.node->num_outputs()) {
        return InvalidArgument("input {} is output {} of {}, which has {}", i, input.index,
                               input.node->Describe(), input.node->num_outputs());
      }
      TUTTI_ASSIGN_OR_RETURN(spec.inputs[i], Local(spec.inputs[i]));
    }
    for (const Node* node : graph_.control_scope_) spec.control_inputs.push_back(node);
    std::vector<const Node*> kept;
    std::unordered_set<const Node*> seen;
    for (const Node* node : spec.control_inputs) {
      if (node == nullptr) return InvalidArgument("a control input is empty");
      // A control input from outside a subgraph is met before the subgraph starts.
      if (&node->graph() != &graph_) {
        if (IsAround(node->graph())) continue;
        return InvalidArgument("the control input {} belongs to another graph", node->Describe());
      }
      if (spec.control_inputs.size() == 1 || seen.insert(node).second) kept.push_back(node);
    }
    spec.control_inputs = std::move(kept);
    const Graph::Wish& wish = graph_.device_scope_;
    if (spec.device.empty() && !wish.device.empty()) {
      spec.device = wish.device;
      spec.placed_at = wish.at;
    }
    // The nodes of a body lie where the If or While does.
    if (!wish.colocate.empty() && graph_.parent() == nullptr &&
        FindAttr(spec.attrs, "_colocate") == nullptr) {
      SetAttr(spec.attrs, "_colocate", wish.colocate);
      if (spec.placed_at.line() == 0) spec.placed_at = wish.at;
    }
    const auto takes_container = [](const AttrDef& attr) { return attr.name == "container"; };
    if (!graph_.container_scope_.empty() && FindAttr(spec.attrs, "container") == nullptr &&
        std::any_of(def.attrs.begin(), def.attrs.end(), takes_container)) {
      SetAttr(spec.attrs, "container", graph_.container_scope_);
    }
    std::sort(spec.attrs.begin(), spec.attrs.end(),
              [](const Attr& a, const Attr& b) { return a.first < b.first; });
    TUTTI_RETURN_IF_ERROR(CheckInputs(def, spec));
    return CheckAttrs(def, spec.attrs);
  }

  // Does this graph lie inside `other`?
  bool IsAround(const Graph& other) const {
    for (const Graph* graph = graph_.parent(); graph != nullptr; graph = graph->parent()) {
      if (graph == &other) return true;
    }
    return false;
  }

  // `output` itself when it belongs to this graph, else the Arg that captures it from an enclosing
  // graph. Each graph between captures in turn, so the walk goes up and then down again.
  absl::StatusOr<Output> Local(Output output) {
    std::vector<Graph*> below;
    Graph* graph = &graph_;
    while (graph != nullptr && graph != &output.graph()) {
      below.push_back(graph);
      graph = graph->parent();
    }
    if (graph == nullptr) {
      return InvalidArgument("{} belongs to another graph{}", output.node->Describe(),
                             output.graph().parent() != nullptr
                                 ? ": it lies inside another If or While, and has a value only "
                                   "there"
                                 : "");
    }
    while (!below.empty()) {
      TUTTI_ASSIGN_OR_RETURN(output, GraphBuilder(*below.back()).CaptureHere(output));
      below.pop_back();
    }
    return output;
  }

  absl::StatusOr<Output> CaptureHere(Output outer) {
    for (const auto& capture : graph_.captures_) {
      if (capture.outer == outer) return capture.arg;
    }
    NodeSpec spec;
    spec.op = "Arg";
    const std::string scope = std::exchange(graph_.name_scope_, "");
    const auto control = std::exchange(graph_.control_scope_, {});
    spec.name = graph_.UniqueName("capture");
    graph_.name_counts_.erase(spec.name);
    spec.attrs = {{"dtype", outer.dtype()}, {"shape", outer.shape()}};
    if (outer.node->op() == "Variable" || outer.node->HasAttr("_variable")) {
      const AttrValue* name = outer.node->FindAttr("_variable");
      SetAttr(spec.attrs, "_variable", name != nullptr ? *name : AttrValue(outer.node->name()));
      const AttrValue* container =
          outer.node->FindAttr(name != nullptr ? "_container" : "container");
      if (container != nullptr) SetAttr(spec.attrs, "_container", *container);
    }
    auto node = Add(std::move(spec));
    graph_.name_scope_ = scope;
    graph_.control_scope_ = control;
    if (!node.ok()) return node.status();
    graph_.captures_.push_back({outer, (*node)->output()});
    return (*node)->output();
  }

  absl::Status Explain(const absl::Status& status, const NodeSpec& spec) {
    std::string message =
        fmt::format("{} \"{}\"{}: {}", spec.op, spec.name, Place(spec), MessageOf(status));
    if (!spec.inputs.empty()) {
      message += "; inputs:";
      for (size_t i = 0; i < std::min<size_t>(spec.inputs.size(), 4); ++i) {
        if (spec.inputs[i])
          message += fmt::format("{} {}", i == 0 ? "" : ",", spec.inputs[i].node->Describe());
      }
      if (spec.inputs.size() > 4) message += fmt::format(" and {} more", spec.inputs.size() - 4);
    }
    return absl::Status(status.code(), message);
  }

  Node* Own(const OpDef& def, NodeSpec spec, std::vector<ValueType> outputs) {
    auto node = std::make_unique<Node>();
    node->id_ = graph_.size();
    node->graph_ = &graph_;
    node->def_ = &def;
    node->spec_ = std::move(spec);
    node->outputs_ = std::move(outputs);
    Node* raw = node.get();
    graph_.nodes_.push_back(std::move(node));
    graph_.by_name_.emplace(raw->name(), raw);
    return raw;
  }

  Graph& graph_;
};

absl::StatusOr<Node*> AddNode(Graph& graph, NodeSpec spec) {
  return GraphBuilder(graph).Add(std::move(spec));
}

OpBuilder::OpBuilder(std::string_view op, std::string_view name) {
  spec_.op = op;
  spec_.name = name;
}

OpBuilder& OpBuilder::In(const Input& input) {
  if (spec_.where.line() == 0) spec_.where = input.where();
  spec_.inputs.push_back(input.output());
  literals_.resize(spec_.inputs.size());
  // What was made of an empty Output or Tensor stays an empty input, which the graph refuses.
  const bool is_literal = input.is_literal() && input.literal().valid();
  if (is_literal) literals_.back() = input.literal();
  if (is_literal && input.is_number()) number_inputs_.push_back(spec_.inputs.size() - 1);
  return *this;
}

OpBuilder& OpBuilder::In(std::span<const Output> inputs) {
  spec_.inputs.insert(spec_.inputs.end(), inputs.begin(), inputs.end());
  literals_.resize(spec_.inputs.size());
  return *this;
}

OpBuilder& OpBuilder::On(Graph& graph) {
  graph_ = &graph;
  return *this;
}

OpBuilder& OpBuilder::At(const std::source_location& where) {
  spec_.where = where;
  return *this;
}

OpBuilder& OpBuilder::After(std::span<const Node* const> nodes) {
  spec_.control_inputs.insert(spec_.control_inputs.end(), nodes.begin(), nodes.end());
  return *this;
}

OpBuilder& OpBuilder::NumbersAs(DType dtype) {
  numbers_as_ = dtype;
  return *this;
}

OpBuilder& OpBuilder::Set(std::string_view attr_name, AttrValue value) {
  SetAttr(spec_.attrs, attr_name, std::move(value));
  return *this;
}

namespace {

// The innermost graph among those of the inputs: inside If and While, outer values are captured
// into it.
Graph* InnermostGraph(std::span<const Output> inputs) {
  Graph* found = nullptr;
  for (const Output& input : inputs) {
    if (!input) continue;
    Graph* graph = &input.graph();
    if (found == nullptr) found = graph;
    for (Graph* up = graph; up != nullptr; up = up->parent()) {
      if (up == found) found = graph;
    }
  }
  return found;
}

// Where no branch or body is being built, its values cannot be used any more: it is finished.
void RequireOutermost(const NodeSpec& spec, const Graph* graph) {
  if (graph == nullptr || graph->parent() == nullptr) return;
  for (const Output& input : spec.inputs) {
    if (!input || &input.graph() != graph) continue;
    ThrowInvalidArgument(
        fmt::format("{}{}{}: its input {} lies inside an If or While and has a value only there; "
                    "let the branch or body return it",
                    spec.op, spec.name.empty() ? "" : fmt::format(" \"{}\"", spec.name),
                    Place(spec), input.node->Describe()));
  }
}

}  // namespace

Node* OpBuilder::BuildNode() {
  Graph* graph = graph_ != nullptr ? graph_ : SubgraphBeingBuilt();
  if (graph == nullptr) {
    graph = InnermostGraph(spec_.inputs);
    RequireOutermost(spec_, graph);
  }
  if (graph == nullptr) {
    ThrowInvalidArgument(
        fmt::format("{}{}: every input is a literal; at least one must be a node's output",
                    spec_.op, Place(spec_)));
  }
  DType dtype = numbers_as_;
  for (const Output& input : spec_.inputs) {
    // Outputs that are not there are refused below, by AddNode.
    if (!input || input.index < 0 || input.index >= input.node->num_outputs()) continue;
    if (dtype == DType::kInvalid) dtype = input.dtype();
  }
  for (size_t i = 0; i < spec_.inputs.size(); ++i) {
    if (!literals_[i]) continue;
    const bool is_number =
        std::find(number_inputs_.begin(), number_inputs_.end(), i) != number_inputs_.end();
    NodeSpec constant;
    constant.op = "Constant";
    constant.where = spec_.where;
    Tensor value = *literals_[i];
    if (is_number && dtype != DType::kInvalid) {
      auto typed = NumberAs(value, dtype);
      if (!typed.ok()) {
        ThrowInvalidArgument(
            fmt::format("{}{}: input {}: {}; a number takes the dtype of the first input that is "
                        "none: give one "
                        "that it can hold, or Cast that input",
                        spec_.op, Place(spec_), i, MessageOf(typed.status())));
      }
      value = *std::move(typed);
    }
    constant.attrs = {{"value", std::move(value)}};
    spec_.inputs[i] = graph->Add(std::move(constant))->output();
  }
  return graph->Add(std::move(spec_));
}

std::vector<Output> OpBuilder::BuildAll() {
  const Node* node = BuildNode();
  std::vector<Output> outputs;
  for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back(node->output(i));
  return outputs;
}

AllOrNothing::~AllOrNothing() {
  if (!kept_) GraphBuilder(graph_).RemoveFrom(size_);
}

namespace {
thread_local Graph* subgraph_being_built = nullptr;
}  // namespace

Graph* SubgraphBeingBuilt() { return subgraph_being_built; }

SubgraphScope::SubgraphScope(Graph* graph)
    : previous_(std::exchange(subgraph_being_built, graph)) {}
SubgraphScope::~SubgraphScope() { subgraph_being_built = previous_; }

}  // namespace tutti
