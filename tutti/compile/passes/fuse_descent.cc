// ApplyGradientDescent of a gradient that is a matrix product, and that nobody else reads, becomes
// one node: the product is summed straight into the variable, scaled by the learning rate. The
// gradient is neither written nor read again, which saves a dense layer three passes over memory of
// the size of its weights, and the memory itself. A gradient that travels (an AllReduce stands
// between) or is put into a bucket is left alone.
#include <unordered_map>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"

namespace tutti {
namespace {

constexpr int kVariable = 0;
constexpr int kLearningRate = 1;
constexpr int kGradient = 2;
constexpr int kScale = 3;

bool IsDescent(const Node& node) { return node.op() == "ApplyGradientDescent"; }

bool CanFuse(const Node& update, const UseCounts& uses) {
  if (!IsDescent(update)) return false;
  if (!update.control_inputs().empty()) return false;
  const Output gradient = update.input(kGradient);
  const Node& product = *gradient.node;
  return product.op() == "MatMul" && gradient.dtype() == kFloat32 && uses.of(gradient) == 1 &&
         !uses.HasControlSuccessor(product) && product.control_inputs().empty() &&
         gradient.shape().IsFullyKnown() && product.device() == update.device();
}

}  // namespace

absl::StatusOr<Program> FuseDescent(Program program, const PassContext& context) {
  if (!HasNode(program, IsDescent)) return program;
  if (!HasKernel(context, "_MatMulDescent", kFloat32)) return program;
  const UseCounts uses(program);
  std::unordered_map<const Node*, bool> inside;  // products that vanish into their update
  for (const auto& node : program.graph->nodes()) {
    if (CanFuse(*node, uses)) inside[node->input(kGradient).node] = true;
  }
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    if (inside.contains(node.get())) continue;
    if (!CanFuse(*node, uses)) {
      TUTTI_RETURN_IF_ERROR(copy.Copy(*node).status());
      continue;
    }
    const Node& product = *node->input(kGradient).node;
    NodeSpec spec = node->spec();
    spec.op = "_MatMulDescent";
    spec.inputs = copy.Mapped(std::vector<Output>{
        node->input(kVariable), node->input(kLearningRate), product.input(0), product.input(1)});
    if (node->num_inputs() > kScale) spec.inputs.push_back(copy.Mapped(node->input(kScale)));
    spec.attrs = {{"transpose_a", product.attr<bool>("transpose_a")},
                  {"transpose_b", product.attr<bool>("transpose_b")}};
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
