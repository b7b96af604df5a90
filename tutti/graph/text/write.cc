#include <algorithm>

#include "tutti/graph/op_def.h"
#include "tutti/graph/text/format.h"
#include "tutti/graph/text/value.h"

namespace tutti {
namespace {

bool IsBare(std::string_view text, std::string_view also) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           also.find(c) != std::string_view::npos;
  });
}

class Writer {
 public:
  explicit Writer(const TextOptions& options) : options_(options) {}

  void Write(const Graph& graph) {
    for (const auto& node : graph.nodes()) WriteNode(*node);
  }
  std::string Take() { return std::move(text_); }

 private:
  void WriteNode(const Node& node) {
    Indent();
    text_ += node.name();
    text_ += node.num_outputs() > 1 ? ", = " : " = ";
    text_ += node.op();
    text_ += '(';
    WriteOutputs(node.inputs());
    text_ += ')';
    WriteAttrs(node);
    for (const Node* control : node.control_inputs()) {
      text_ += " ^";
      text_ += control->name();
    }
    if (!node.device().empty()) {
      text_ += " @";
      text_ += IsBare(node.device(), "/:.-") ? node.device() : Quote(node.device());
    }
    if (options_.types) WriteTypes(node);
    text_ += '\n';
  }

  void WriteAttrs(const Node& node) {
    if (node.attrs().empty()) return;
    text_ += " {";
    for (size_t i = 0; i < node.attrs().size(); ++i) {
      const auto& [name, value] = node.attrs()[i];
      if (i > 0) text_ += ", ";
      text_ += IsBare(name, ".") ? name : Quote(name);
      text_ += '=';
      if (const auto* subgraph = std::get_if<std::shared_ptr<const Subgraph>>(&value)) {
        WriteSubgraph(subgraph->get());
      } else {
        AppendValue(value, node.def().FindAttr(name) != nullptr, repeated_bytes_, text_);
      }
    }
    text_ += '}';
  }

  // Subgraphs nest at most 64 deep.
  void WriteSubgraph(const Subgraph* subgraph) {
    if (subgraph == nullptr || subgraph->graph == nullptr) {
      text_ += "{}";
      return;
    }
    text_ += "{\n";
    ++depth_;
    Write(*subgraph->graph);
    WriteList("args", subgraph->args);
    WriteList("results", subgraph->results);
    --depth_;
    Indent();
    text_ += '}';
  }

  void WriteList(std::string_view word, const std::vector<Output>& outputs) {
    Indent();
    text_ += word;
    if (!outputs.empty()) text_ += ' ';
    WriteOutputs(outputs);
    text_ += '\n';
  }

  void WriteOutputs(const std::vector<Output>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i > 0) text_ += ", ";
      text_ += outputs[i].node->name();
      if (outputs[i].index > 0) {
        text_ += ':';
        text_ += std::to_string(outputs[i].index);
      }
    }
  }

  void WriteTypes(const Node& node) {
    for (int i = 0; i < node.num_outputs(); ++i) {
      text_ += i == 0 ? "  # " : "; ";
      text_ += NameOf(node.type(i).dtype);
      text_ += ' ';
      text_ += node.type(i).shape.ToString();
    }
  }

  void Indent() { text_.append(2 * depth_, ' '); }

  const TextOptions& options_;
  std::string text_;
  size_t depth_ = 0;
  int64_t repeated_bytes_ = 0;
};

}  // namespace

std::string ToText(const Graph& graph, const TextOptions& options) {
  Writer writer(options);
  writer.Write(graph);
  return writer.Take();
}

}  // namespace tutti
