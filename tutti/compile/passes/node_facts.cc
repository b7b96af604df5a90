#include "tutti/compile/passes/node_facts.h"

#include <algorithm>

#include "tutti/graph/op_def.h"

namespace tutti {

const Tensor* ConstantOf(Output output) {
  const Node& node = *output.node;
  if (node.op() != "Constant" || !node.control_inputs().empty()) return nullptr;
  return &node.attr<Tensor>("value");
}

bool IsVariable(Output output) {
  return output.node->op() == "Variable" || output.node->HasAttr("_variable");
}

bool HasEffects(const Node& node) {
  if (!node.def().stateful && !node.def().async) return false;
  constexpr std::string_view kHarmless[] = {"NoOp",          "Variable",     "IsInitialized",
                                            "RandomUniform", "RandomNormal", "TruncatedNormal",
                                            "Shuffle",       "Dropout",      "QueueSize"};
  return std::find(std::begin(kHarmless), std::end(kHarmless), node.op()) == std::end(kHarmless);
}

bool IsPure(const Node& node) {
  if (node.def().stateful || node.def().async) return false;
  if (node.op() == "Placeholder" || node.op() == "Arg") return false;
  // The body of an If or While may hold anything.
  return std::none_of(node.attrs().begin(), node.attrs().end(),
                      [](const Attr& attr) { return TypeOf(attr.second) == AttrType::kSubgraph; });
}

bool HasNode(const Program& program, const std::function<bool(const Node&)>& matches) {
  const auto& nodes = program.graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const std::unique_ptr<Node>& node) { return matches(*node); });
}

}  // namespace tutti
