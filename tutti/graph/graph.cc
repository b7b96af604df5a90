#include "tutti/graph/graph.h"

#include <fmt/format.h>

#include <charconv>

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {

DType Output::dtype() const { return node->type(index).dtype; }
const Shape& Output::shape() const { return node->type(index).shape; }
Graph& Output::graph() const { return node->graph(); }

std::string Output::name() const {
  return index == 0 ? node->name() : fmt::format("{}:{}", node->name(), index);
}

const AttrValue* Node::FindAttr(std::string_view name) const {
  if (const AttrValue* given = tutti::FindAttr(spec_.attrs, name)) return given;
  const AttrDef* declared = def_->FindAttr(name);
  return declared != nullptr && declared->default_value ? &*declared->default_value : nullptr;
}

const AttrValue& Node::RequireAttr(std::string_view name) const {
  const AttrValue* value = FindAttr(name);
  TUTTI_CHECK(value != nullptr);
  return *value;
}

std::string Node::Describe() const {
  const std::string_view file = spec_.where.file_name();
  if (file.empty()) return fmt::format("{} \"{}\"", op(), name());
  const size_t slash = file.rfind('/');
  return fmt::format("{} \"{}\" ({}:{})", op(), name(),
                     slash == std::string_view::npos ? file : file.substr(slash + 1),
                     spec_.where.line());
}

Graph::Graph() = default;
Graph::~Graph() = default;

Node* Graph::Add(NodeSpec spec) { return ValueOrThrow(AddNode(*this, std::move(spec))); }

void Graph::Reserve(int64_t nodes) {
  nodes_.reserve(size_t(nodes));
  by_name_.reserve(size_t(nodes));
  name_counts_.reserve(size_t(nodes));
}

const Node* Graph::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

Output Graph::FindOutput(std::string_view name) const {
  int index = 0;
  if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    const auto digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error != std::errc() || end != digits.data() + digits.size()) return {};
    name = name.substr(0, colon);
  }
  const Node* node = Find(name);
  if (node == nullptr || index < 0 || index >= node->num_outputs()) return {};
  return node->output(index);
}

std::string Graph::UniqueName(std::string_view base) {
  const std::string full = name_scope_ + std::string(base);
  // Two counters could collide only through a name that was given in full ("dense_1"), hence the
  // look-up.
  for (;;) {
    const int64_t count = name_counts_[full]++;
    std::string name = count == 0 ? full : fmt::format("{}_{}", full, count);
    if (by_name_.contains(name)) continue;
    if (count > 0 && !name_counts_.try_emplace(name, 1).second) continue;
    return name;
  }
}

std::string_view Node::colocated_with() const {
  const AttrValue* value = FindAttr("_colocate");
  const auto* name = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return name == nullptr ? std::string_view() : *name;
}

namespace {

Graph& GraphOf(Output output) {
  if (!output) ThrowInvalidArgument("ColocateWith: the output is empty (default-constructed)");
  return output.graph();
}

}  // namespace

NameScope::NameScope(Graph& graph, std::string_view name)
    : graph_(graph), previous_(graph.name_scope_) {
  graph_.name_scope_ = name == "/" ? "" : graph_.UniqueName(name) + "/";
}
NameScope::~NameScope() { graph_.name_scope_ = previous_; }

DeviceScope::DeviceScope(Graph& graph, std::string_view device, std::source_location where)
    : graph_(graph), previous_(graph.device_scope_) {
  graph_.device_scope_.device = device;
  graph_.device_scope_.at = where;
}
DeviceScope::DeviceScope(Graph& graph, const Node& like)
    : graph_(graph), previous_(graph.device_scope_) {
  graph_.device_scope_ = {like.device(), std::string(like.colocated_with()), like.spec().placed_at};
}
DeviceScope::~DeviceScope() { graph_.device_scope_ = std::move(previous_); }

ColocateWith::ColocateWith(Output output, std::source_location where)
    : graph_(GraphOf(output)), previous_(graph_.device_scope_) {
  graph_.device_scope_ = {.device = "", .colocate = output.node->name(), .at = where};
}
ColocateWith::~ColocateWith() { graph_.device_scope_ = std::move(previous_); }

ContainerScope::ContainerScope(Graph& graph, std::string_view container)
    : graph_(graph), previous_(graph.container_scope_) {
  graph_.container_scope_ = container;
}
ContainerScope::~ContainerScope() { graph_.container_scope_ = std::move(previous_); }

ControlScope::ControlScope(Graph& graph, std::vector<const Node*> nodes)
    : graph_(graph), previous_size_(graph.control_scope_.size()) {
  graph_.control_scope_.insert(graph_.control_scope_.end(), nodes.begin(), nodes.end());
}
ControlScope::~ControlScope() { graph_.control_scope_.resize(previous_size_); }

}  // namespace tutti
