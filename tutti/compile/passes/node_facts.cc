#include "tutti/compile/passes/node_facts.h"

#include <algorithm>

#include "tutti/device/kernel_registry.h"
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

bool IsPure(const Node& node) {
  const OpDef& def = node.def();
  if (def.stateful || def.async) return false;
  if (def.source && node.op() != "Constant") return false;
  return !def.has_subgraphs();  // the body of an If or While may hold anything
}

bool HasKernel(const PassContext& context, std::string_view op, DType dtype) {
  const std::string_view type = context.device != nullptr ? context.device->type() : "cpu";
  return KernelRegistry::Global().Find(op, type, dtype) != nullptr;
}

bool HasKernelWhereItRuns(const Node& node, std::string_view op, DType dtype) {
  return KernelRegistry::Global().Find(op, DeviceTypeOf(node), dtype) != nullptr;
}

std::string DeviceTypeOf(const Node& node) {
  const auto name = DeviceName::Parse(node.device());
  return name.ok() && name->type ? *name->type : "cpu";
}

bool HasNode(const Program& program, const std::function<bool(const Node&)>& matches) {
  const auto& nodes = program.graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const std::unique_ptr<Node>& node) { return matches(*node); });
}

}  // namespace tutti
