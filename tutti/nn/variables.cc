#include "tutti/nn/variables.h"

namespace tutti::nn {

std::vector<Output> Variables(const Graph& graph) {
  std::vector<Output> variables;
  for (const auto& node : graph.nodes()) {
    if (node->op() == "Variable") variables.push_back(node->output());
  }
  return variables;
}

std::vector<Output> TrainableVariables(const Graph& graph) {
  std::vector<Output> trainable;
  for (const Output& variable : Variables(graph)) {
    if (IsFloating(variable.dtype()) && variable.node->attr<bool>("trainable")) {
      trainable.push_back(variable);
    }
  }
  return trainable;
}

int64_t CountParameters(const std::vector<Output>& variables) {
  int64_t count = 0;
  for (const Output& variable : variables) count += variable.shape().elements();
  return count;
}

}  // namespace tutti::nn
