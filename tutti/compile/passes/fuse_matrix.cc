// MatMul or Conv2D, then a bias, then an activation become one node, which oneDNN runs in one go
// where it can.
//
// The bias is BiasAdd, or Add of a vector that is as long as the last dimension. What stands
// between the steps must have no other reader: neither a fetch, nor a gradient. Gradients of Relu,
// Tanh and Sigmoid read the activation's result only, so these are fused in training, too; those of
// Gelu read its input, so Gelu is fused in inference only. On a device without the fused kernel a
// chain stays as it is.
#include <unordered_map>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"

namespace tutti {
namespace {

// A chain, found at its first node.
struct Chain {
  const Node* product = nullptr;
  const Node* bias_add = nullptr;    // null without a bias
  const Node* activation = nullptr;  // null without an activation
  Output bias;

  const Node* last() const {
    return activation != nullptr ? activation : bias_add != nullptr ? bias_add : product;
  }
};

std::string FusedOp(const Node& product) { return "_Fused" + product.op(); }

bool IsProduct(const Node& node) { return node.op() == "MatMul" || node.op() == "Conv2D"; }

// The activation by the name that the kernels know; "" when they do not know it.
std::string ActivationOf(const Node& node) {
  for (const char* name : {"Relu", "Relu6", "Tanh", "Sigmoid"}) {
    if (node.op() == name) return name;
  }
  if (node.op() == "Gelu" && !node.attr<bool>("approximate")) return "Gelu";
  return "";
}

class Fuser {
 public:
  Fuser(const Program& program, const PassContext& context)
      : program_(program), context_(context), uses_(program) {}

  // The chains by their last nodes. A node in one chain is in no other, since it has one reader.
  std::unordered_map<const Node*, Chain> Find() {
    std::unordered_map<const Node*, Chain> chains;
    for (const auto& node : program_.graph->nodes()) {
      if (!IsProduct(*node) || !HasKernel(context_, FusedOp(*node), kFloat32)) continue;
      if (node->type(0).dtype != kFloat32 || !Plain(*node)) continue;
      Chain chain = {.product = node.get()};
      const Node* next = OnlyReader(node->output());
      if (next != nullptr && TakesBias(*next, node->output(), chain.bias)) {
        chain.bias_add = next;
        next = OnlyReader(next->output());
      }
      if (next != nullptr && !ActivationOf(*next).empty() && next->control_inputs().empty()) {
        chain.activation = next;
      }
      if (chain.last() != node.get()) chains[chain.last()] = chain;
    }
    return chains;
  }

 private:
  // oneDNN is asked for concrete sizes that are not empty.
  static bool Plain(const Node& node) {
    for (const Output& input : node.inputs()) {
      if (!input.shape().IsFullyKnown() || input.shape().elements() == 0) return false;
    }
    return node.type(0).shape.IsFullyKnown() && node.type(0).shape.elements() > 0;
  }

  // Who reads `output`, if there is exactly one reader and nothing else waits for its node.
  const Node* OnlyReader(Output output) const {
    if (uses_.of(output) != 1 || uses_.HasControlSuccessor(*output.node)) return nullptr;
    const auto& readers = uses_.consumers(output);
    return readers.size() == 1 ? readers.front() : nullptr;
  }

  // `value` + a vector of its last dimension. The bias must exist before the product, or the fused
  // node, which stands where the last node stood, still comes after it: always so.
  static bool TakesBias(const Node& node, Output value, Output& bias) {
    if ((node.op() != "BiasAdd" && node.op() != "Add") || !node.control_inputs().empty()) {
      return false;
    }
    const bool first = node.input(0) == value;
    if (node.op() == "BiasAdd" && !first) return false;
    bias = node.input(first ? 1 : 0);
    return bias.shape() == Shape{value.shape().dim(-1)} && node.type(0).shape == value.shape();
  }

  const Program& program_;
  const PassContext& context_;
  UseCounts uses_;
};

NodeSpec FusedSpec(const Chain& chain, NodeSpec last, NodeSpec product, Output bias) {
  NodeSpec spec = {.op = FusedOp(*chain.product),
                   .name = last.name,
                   .inputs = {product.inputs[0], product.inputs[1]},
                   .control_inputs = product.control_inputs,
                   .attrs = product.attrs,
                   .device = last.device,
                   .where = last.where};
  if (bias) spec.inputs.push_back(bias);
  if (chain.activation != nullptr) {
    SetAttr(spec.attrs, "activation", ActivationOf(*chain.activation));
  }
  return spec;
}

}  // namespace

absl::StatusOr<Program> FuseMatrix(Program program, const PassContext& context) {
  if (!HasNode(program, IsProduct)) return program;
  const auto chains = Fuser(program, context).Find();
  if (chains.empty()) return program;
  std::unordered_map<const Node*, bool> inside;  // all but the last of their chain
  for (const auto& [last, chain] : chains) {
    inside[chain.product] = true;
    if (chain.bias_add != nullptr && chain.bias_add != last) inside[chain.bias_add] = true;
  }
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    if (inside.contains(node.get())) continue;
    const auto it = chains.find(node.get());
    if (it == chains.end()) {
      TUTTI_RETURN_IF_ERROR(copy.Copy(*node).status());
      continue;
    }
    const Chain& chain = it->second;
    TUTTI_ASSIGN_OR_RETURN(NodeSpec product, copy.SpecOf(*chain.product));
    NodeSpec spec = FusedSpec(chain, node->spec(), std::move(product),
                              chain.bias_add != nullptr ? copy.Mapped(chain.bias) : Output{});
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
