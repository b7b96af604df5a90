// Reading the text form. First every line becomes a ParsedNode, whose inputs are still names. Then
// the names are resolved and the nodes put into an order in which inputs come first: lines are
// visited from top to bottom, each after what it needs, with a stack of our own, because a chain
// may be a million nodes long. A text that is in order already keeps its order. Last, each is added
// to the graph, which infers its types.
#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/text/format.h"
#include "tutti/graph/text/value.h"

namespace tutti {
namespace {

constexpr int kMostNested = 64;
// A cycle of more nodes is cut in the message.
constexpr size_t kMostOfCycle = 8;

using Position = TextScanner::Position;

struct ParsedOutput {
  std::string_view name;
  int index = 0;
  Position at;
  size_t node = 0;  // its position among the parsed nodes, once resolved
};

struct ParsedNode {
  std::string_view name;
  Position at;
  bool several_outputs = false;  // "s, ="
  const OpDef* def = nullptr;
  std::vector<ParsedOutput> inputs;
  std::vector<ParsedOutput> control_inputs;
  AttrList attrs;
  std::string device;
};

// What stands between { and }, or the whole text.
struct ParsedGraph {
  std::vector<ParsedNode> nodes;
  std::vector<ParsedOutput> args;
  std::vector<ParsedOutput> results;
  std::unordered_map<std::string_view, size_t> by_name;
};

// Fills `graph` with the nodes of `parsed`.
class GraphMaker {
 public:
  GraphMaker(ParsedGraph& parsed, Graph& graph) : parsed_(parsed), graph_(graph) {}

  absl::Status Make() {
    for (ParsedNode& node : parsed_.nodes) {
      TUTTI_RETURN_IF_ERROR(Resolve(node.inputs));
      TUTTI_RETURN_IF_ERROR(Resolve(node.control_inputs));
    }
    TUTTI_RETURN_IF_ERROR(Resolve(parsed_.args));
    TUTTI_RETURN_IF_ERROR(Resolve(parsed_.results));
    states_.resize(parsed_.nodes.size());
    for (size_t i = 0; i < parsed_.nodes.size(); ++i) TUTTI_RETURN_IF_ERROR(AddWithInputs(i));
    return absl::OkStatus();
  }

  // REQUIRES: Make() succeeded.
  absl::StatusOr<std::vector<Output>> Find(const std::vector<ParsedOutput>& parsed) const {
    std::vector<Output> outputs;
    outputs.reserve(parsed.size());
    for (const ParsedOutput& output : parsed) {
      const Node* node = states_[output.node].added;
      if (output.index >= node->num_outputs()) {
        return TextScanner::ErrorAt(
            output.at,
            fmt::format("{} has {} output{}; there is no output {}", node->Describe(),
                        node->num_outputs(), node->num_outputs() == 1 ? "" : "s", output.index));
      }
      outputs.push_back(node->output(output.index));
    }
    return outputs;
  }

 private:
  struct State {
    const Node* added = nullptr;
    bool waiting = false;  // on the stack
  };
  // A node on the stack, and how many of its inputs and control inputs were looked at.
  struct Visit {
    size_t node;
    size_t next;
  };

  absl::Status Resolve(std::vector<ParsedOutput>& outputs) const {
    for (ParsedOutput& output : outputs) {
      const auto it = parsed_.by_name.find(output.name);
      if (it == parsed_.by_name.end()) {
        return TextScanner::ErrorAt(output.at, fmt::format("there is no node \"{}\"", output.name));
      }
      output.node = it->second;
    }
    return absl::OkStatus();
  }

  absl::Status AddWithInputs(size_t first) {
    if (states_[first].added != nullptr) return absl::OkStatus();
    stack_ = {{first, 0}};
    states_[first].waiting = true;
    while (!stack_.empty()) {
      Visit& visit = stack_.back();
      const ParsedNode& node = parsed_.nodes[visit.node];
      const size_t inputs = node.inputs.size();
      if (visit.next == inputs + node.control_inputs.size()) {
        TUTTI_RETURN_IF_ERROR(Add(visit.node));
        states_[visit.node].waiting = false;
        stack_.pop_back();
        continue;
      }
      const size_t needed = visit.next < inputs ? node.inputs[visit.next].node
                                                : node.control_inputs[visit.next - inputs].node;
      ++visit.next;
      if (states_[needed].added != nullptr) continue;
      if (states_[needed].waiting) return CycleError(needed);
      states_[needed].waiting = true;
      stack_.push_back({needed, 0});
    }
    return absl::OkStatus();
  }

  // The stack holds the way from `node` back to itself.
  absl::Status CycleError(size_t node) const {
    size_t begin = stack_.size();
    while (stack_[begin - 1].node != node) --begin;
    std::string path;
    const size_t length = stack_.size() - begin + 1;
    for (size_t i = 0; i < std::min(length, kMostOfCycle); ++i) {
      path += fmt::format("\"{}\" needs ", parsed_.nodes[stack_[begin - 1 + i].node].name);
    }
    if (length > kMostOfCycle) path += fmt::format("({} more) ", length - kMostOfCycle);
    return TextScanner::ErrorAt(
        parsed_.nodes[node].at,
        fmt::format("the nodes form a cycle: {}\"{}\"", path, parsed_.nodes[node].name));
  }

  absl::Status Add(size_t index) {
    ParsedNode& node = parsed_.nodes[index];
    NodeSpec spec;
    spec.op = node.def->name;
    spec.name = node.name;
    TUTTI_ASSIGN_OR_RETURN(spec.inputs, Find(node.inputs));
    for (const ParsedOutput& control : node.control_inputs) {
      spec.control_inputs.push_back(states_[control.node].added);
    }
    spec.attrs = std::move(node.attrs);
    spec.device = std::move(node.device);
    const auto added = AddNode(graph_, std::move(spec));
    if (!added.ok()) return WithPrefix(added.status(), fmt::format("line {}: ", node.at.line));
    if (node.several_outputs && (*added)->num_outputs() < 2) {
      return TextScanner::ErrorAt(
          node.at, fmt::format("{} has {} output{}; a comma after the name means several",
                               (*added)->Describe(), (*added)->num_outputs(),
                               (*added)->num_outputs() == 1 ? "" : "s"));
    }
    states_[index].added = *added;
    return absl::OkStatus();
  }

  ParsedGraph& parsed_;
  Graph& graph_;
  std::vector<State> states_;
  std::vector<Visit> stack_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) {}

  absl::Status Parse(Graph& graph) {
    ParsedGraph parsed;
    for (scanner_.SkipEmptyLines(); !scanner_.AtEndOfText(); scanner_.SkipEmptyLines()) {
      TUTTI_RETURN_IF_ERROR(ParseNode(parsed, graph, 0));
      if (!scanner_.AtEndOfLine()) {
        return scanner_.Expected("'{', '^', '@' or the end of the line after the node");
      }
    }
    return GraphMaker(parsed, graph).Make();
  }

 private:
  // name = Op(inputs) {attrs} ^control @device
  absl::Status ParseNode(ParsedGraph& parsed, Graph& graph, int depth) {
    ParsedNode node;
    node.at = scanner_.position();
    node.name = scanner_.Word();
    if (node.name.empty()) return scanner_.Expected("the name of a node");
    if (const auto [it, is_new] = parsed.by_name.try_emplace(node.name, parsed.nodes.size());
        !is_new) {
      return TextScanner::ErrorAt(
          node.at, fmt::format("the name \"{}\" is taken by the node of line {}", node.name,
                               parsed.nodes[it->second].at.line));
    }
    node.several_outputs = scanner_.Consume(',');
    TUTTI_RETURN_IF_ERROR(scanner_.Expect('=', "after the node's name"));
    const Position op_at = scanner_.position();
    const std::string_view op = scanner_.Word();
    if (op.empty()) return scanner_.Expected("the name of an op");
    node.def = OpRegistry::Global().Find(op);
    if (node.def == nullptr) {
      return WithPrefix(NotFound("there is no op \"{}\"", op),
                        fmt::format("line {}, column {}: ", op_at.line, op_at.column));
    }
    TUTTI_RETURN_IF_ERROR(scanner_.Expect('(', "after the op"));
    while (!scanner_.Consume(')')) {
      if (!node.inputs.empty())
        TUTTI_RETURN_IF_ERROR(scanner_.Expect(',', "or ')' after an input"));
      TUTTI_ASSIGN_OR_RETURN(ParsedOutput input, ParseOutput("the name of an input"));
      node.inputs.push_back(input);
    }
    TUTTI_RETURN_IF_ERROR(ParseAttrs(node, graph, depth));
    while (scanner_.Consume('^')) {
      TUTTI_ASSIGN_OR_RETURN(ParsedOutput control, ParseOutput("the name of a node after '^'"));
      if (control.index != 0) {
        return TextScanner::ErrorAt(control.at,
                                    "a control input is a node, not one of its outputs");
      }
      node.control_inputs.push_back(control);
    }
    if (scanner_.Consume('@')) TUTTI_RETURN_IF_ERROR(ParseDevice(node));
    parsed.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<ParsedOutput> ParseOutput(std::string_view what) {
    ParsedOutput output;
    output.at = scanner_.position();
    output.name = scanner_.Word();
    if (output.name.empty()) return scanner_.Expected(what);
    if (scanner_.Consume(':')) {
      const Position at = scanner_.position();
      const std::string_view digits = scanner_.Word();
      const char* const end = digits.data() + digits.size();
      const auto [stop, error] = std::from_chars(digits.data(), end, output.index);
      if (digits.empty() || error != std::errc() || stop != end || output.index < 0) {
        return TextScanner::ErrorAt(
            at, fmt::format("expected the number of an output after ':', found '{}'",
                            digits.substr(0, 32)));
      }
    }
    return output;
  }

  absl::Status ParseDevice(ParsedNode& node) {
    if (scanner_.Peek() == '"') {
      TUTTI_ASSIGN_OR_RETURN(node.device, scanner_.Quoted());
      return absl::OkStatus();
    }
    node.device = scanner_.Word();
    while (!node.device.empty() && scanner_.Consume(':')) {
      node.device += ':';
      node.device += scanner_.Word();
    }
    return node.device.empty() ? scanner_.Expected("a device such as /cpu:0 after '@'")
                               : absl::OkStatus();
  }

  absl::Status ParseAttrs(ParsedNode& node, Graph& graph, int depth) {
    if (!scanner_.Consume('{')) return absl::OkStatus();
    for (bool first = true; !scanner_.Consume('}'); first = false) {
      if (!first) TUTTI_RETURN_IF_ERROR(scanner_.Expect(',', "or '}' after an attribute"));
      const Position at = scanner_.position();
      std::string name;
      if (scanner_.Peek() == '"') {
        TUTTI_ASSIGN_OR_RETURN(name, scanner_.Quoted());
      } else {
        name = scanner_.Word();
        if (name.empty()) return scanner_.Expected("the name of an attribute");
      }
      const AttrDef* declared = node.def->FindAttr(name);
      if (declared == nullptr && !name.starts_with('_')) {
        return TextScanner::ErrorAt(
            at, fmt::format("the op {} has no attribute \"{}\"", node.def->name, name));
      }
      if (FindAttr(node.attrs, name) != nullptr) {
        return TextScanner::ErrorAt(at, fmt::format("attribute \"{}\" is given twice", name));
      }
      TUTTI_RETURN_IF_ERROR(scanner_.Expect('=', "after the attribute's name"));
      if (declared != nullptr ? declared->type == AttrType::kSubgraph : scanner_.Peek() == '{') {
        TUTTI_ASSIGN_OR_RETURN(auto subgraph, ParseSubgraph(graph, depth));
        SetAttr(node.attrs, name, std::move(subgraph));
      } else {
        TUTTI_ASSIGN_OR_RETURN(
            AttrValue value,
            ParseValue(scanner_, declared != nullptr ? std::optional(declared->type) : std::nullopt,
                       repeated_bytes_));
        SetAttr(node.attrs, name, std::move(value));
      }
    }
    return absl::OkStatus();
  }

  // The lines between { and }: nodes, "args a, b" and "results c, d:1". {} is no subgraph at all.
  absl::StatusOr<std::shared_ptr<const Subgraph>> ParseSubgraph(Graph& parent, int depth) {
    if (depth == kMostNested) {
      return scanner_.Expected(fmt::format("subgraphs nested at most {} deep", kMostNested));
    }
    TUTTI_RETURN_IF_ERROR(scanner_.Expect('{', "before a subgraph"));
    if (scanner_.Consume('}')) return std::shared_ptr<const Subgraph>();
    auto subgraph = std::make_shared<Subgraph>();
    subgraph->graph = std::make_unique<Graph>(&parent);
    ParsedGraph parsed;
    for (scanner_.SkipEmptyLines(); !scanner_.Consume('}'); scanner_.SkipEmptyLines()) {
      TextScanner ahead = scanner_;
      const std::string_view word = ahead.Word();
      if ((word == "args" || word == "results") && ahead.Peek() != '=' && ahead.Peek() != ',') {
        scanner_ = ahead;
        TUTTI_RETURN_IF_ERROR(ParseOutputLine(word == "args" ? parsed.args : parsed.results));
      } else {
        TUTTI_RETURN_IF_ERROR(ParseNode(parsed, *subgraph->graph, depth + 1));
      }
      if (!scanner_.AtEndOfLine() && scanner_.Peek() != '}') {
        return scanner_.Expected("the end of the line or '}' after a line of a subgraph");
      }
    }
    GraphMaker maker(parsed, *subgraph->graph);
    TUTTI_RETURN_IF_ERROR(maker.Make());
    TUTTI_ASSIGN_OR_RETURN(subgraph->args, maker.Find(parsed.args));
    TUTTI_ASSIGN_OR_RETURN(subgraph->results, maker.Find(parsed.results));
    for (const Output& arg : subgraph->args) {
      if (arg.node->op() != "Arg") {
        return InvalidArgument("line {}: the args of a subgraph are Arg nodes, \"{}\" is a {}",
                               parsed.args[&arg - subgraph->args.data()].at.line, arg.node->name(),
                               arg.node->op());
      }
    }
    return subgraph;
  }

  absl::Status ParseOutputLine(std::vector<ParsedOutput>& outputs) {
    if (scanner_.AtEndOfLine() || scanner_.Peek() == '}') return absl::OkStatus();
    do {
      TUTTI_ASSIGN_OR_RETURN(ParsedOutput output, ParseOutput("the name of an output"));
      outputs.push_back(output);
    } while (scanner_.Consume(','));
    return absl::OkStatus();
  }

  TextScanner scanner_;
  int64_t repeated_bytes_ = 0;
};

}  // namespace

absl::Status ParseText(std::string_view text, Graph* graph) {
  if (graph->size() != 0 || !graph->name_scope().empty() || !graph->device_scope().empty() ||
      !graph->control_scope().empty()) {
    return FailedPrecondition(
        "a text graph is read into an empty graph without open scopes; this one has {} nodes",
        graph->size());
  }
  try {
    return Parser(text).Parse(*graph);
  } catch (...) {
    return StatusFromCurrentException();  // out of memory
  }
}

}  // namespace tutti
