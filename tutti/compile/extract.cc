#include "tutti/compile/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "tutti/compile/place.h"
#include "tutti/graph/build.h"

namespace tutti {
namespace {

absl::Status CheckFeed(const Graph& graph, const StepRequest::Fed& feed) {
  if (!feed.output) return InvalidArgument("a feed names no output");
  if (&feed.output.graph() != &graph) {
    return InvalidArgument("feed {}: it belongs to another graph than the session's",
                           feed.output.node->Describe());
  }
  if (feed.type.dtype == DType::kInvalid) {
    return InvalidArgument("feed {}: the tensor is empty (default-constructed)",
                           feed.output.node->Describe());
  }
  if (feed.type.dtype != feed.output.dtype() ||
      !feed.type.shape.CompatibleWith(feed.output.shape())) {
    return InvalidArgument("feed {}: expected {} {}, got {} {}", feed.output.node->Describe(),
                           NameOf(feed.output.dtype()), feed.output.shape().ToString(),
                           NameOf(feed.type.dtype), feed.type.shape.ToString());
  }
  return absl::OkStatus();
}

// Which nodes of the graph are needed. Walks the ids downwards: a node's consumers all have larger
// ids, so one walk without recursion settles everything.
class Needed {
 public:
  Needed(const Graph& graph, const StepRequest& request) : marked_(graph.size(), false) {
    for (const auto& feed : request.feeds) fed_.insert(feed.output);
  }
  void Require(Output output) {
    if (!fed_.contains(output)) marked_[output.node->id()] = true;
  }
  void Require(const Node& node) { marked_[node.id()] = true; }
  void Close(const Graph& graph) {
    for (int64_t id = graph.size() - 1; id >= 0; --id) {
      if (!marked_[id]) continue;
      const Node& node = *graph.nodes()[id];
      for (const Output& input : node.inputs()) Require(input);
      for (const Node* control : node.control_inputs()) Require(*control);
    }
  }
  bool contains(const Node& node) const { return marked_[node.id()]; }

 private:
  std::unordered_set<Output, OutputHash> fed_;
  std::vector<bool> marked_;
};

// A node that is colocated with one that is not part of the step asks for what that one asks
// for.
void KeepWish(const Graph& graph, const Needed& needed, NodeSpec& spec) {
  const AttrValue* beside = FindAttr(spec.attrs, "_colocate");
  const auto* name = beside == nullptr ? nullptr : std::get_if<std::string>(beside);
  // Following in a circle leads back to where it began or nowhere; Place tells of that.
  const Node* node = name == nullptr ? nullptr : graph.Find(*name);
  for (int64_t i = 0; node != nullptr && !needed.contains(*node) && i < graph.size(); ++i) {
    if (const Node* state = StateOf(*node)) {
      node = state;
    } else if (const Node* next = graph.Find(node->colocated_with())) {
      node = next;
    } else {
      std::erase_if(spec.attrs, [](const Attr& attr) { return attr.first == "_colocate"; });
      if (!node->device().empty()) spec.device = node->device();
      return;
    }
  }
  if (node != nullptr) SetAttr(spec.attrs, "_colocate", node->name());
}

absl::Status RequireOwn(const Graph& graph, const Node* node, const char* what) {
  if (node == nullptr) return InvalidArgument("a {} is empty", what);
  if (&node->graph() != &graph) {
    return InvalidArgument("{} {}: it belongs to another graph than the session's", what,
                           node->Describe());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> Extract(const Graph& graph, const StepRequest& request) {
  std::unordered_set<Output, OutputHash> fed;
  for (const auto& feed : request.feeds) {
    TUTTI_RETURN_IF_ERROR(CheckFeed(graph, feed));
    if (!fed.insert(feed.output).second) {
      return InvalidArgument("feed {}: it is fed twice in one run", feed.output.node->Describe());
    }
  }
  Needed needed(graph, request);
  for (const Output& fetch : request.fetches) {
    TUTTI_RETURN_IF_ERROR(RequireOwn(graph, fetch.node, "fetch"));
    if (fetch.index < 0 || fetch.index >= fetch.node->num_outputs()) {
      return InvalidArgument("fetch {}: it has no output {}", fetch.node->Describe(), fetch.index);
    }
    needed.Require(fetch);
  }
  for (const Node* target : request.targets) {
    TUTTI_RETURN_IF_ERROR(RequireOwn(graph, target, "target"));
    needed.Require(*target);
  }
  needed.Close(graph);

  Program whole;
  for (const auto& feed : request.feeds) whole.feeds.push_back(feed.output);
  whole.fetches = request.fetches;
  whole.targets = request.targets;
  ProgramCopy copy(whole);
  for (const auto& feed : request.feeds) {
    NodeSpec spec;
    spec.op = "Placeholder";
    spec.name = feed.output.index == 0 && !needed.contains(*feed.output.node)
                    ? feed.output.node->name()
                    : fmt::format("{}.feed{}", feed.output.node->name(), feed.output.index);
    spec.attrs = {{"dtype", feed.type.dtype}, {"shape", feed.type.shape}};
    spec.device = feed.output.node->device();
    spec.where = feed.output.node->where();
    spec.placed_at = feed.output.node->spec().placed_at;
    if (const auto beside = feed.output.node->colocated_with(); !beside.empty()) {
      SetAttr(spec.attrs, "_colocate", std::string(beside));
      KeepWish(graph, needed, spec);
    }
    TUTTI_ASSIGN_OR_RETURN(Node * placeholder, AddNode(copy.to(), std::move(spec)));
    copy.Map(feed.output, placeholder->output());
    if (!needed.contains(*feed.output.node)) copy.MapControl(*feed.output.node, {placeholder});
  }
  for (const auto& node : graph.nodes()) {
    if (!needed.contains(*node)) continue;
    if (node->op() == "Placeholder") {
      return InvalidArgument("{} has no value in this run; feed it a {} {}", node->Describe(),
                             NameOf(node->type(0).dtype), node->type(0).shape.ToString());
    }
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    KeepWish(graph, needed, spec);
    TUTTI_ASSIGN_OR_RETURN(Node * added, AddNode(copy.to(), std::move(spec)));
    for (int i = 0; i < node->num_outputs(); ++i) {
      if (!fed.contains(node->output(i))) copy.Map(node->output(i), added->output(i));
    }
    copy.MapControl(*node, {added});
  }
  return copy.Finish();
}

}  // namespace tutti
