#include "tutti/train/optimizers/weight_decay.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/state.h"

namespace tutti {
namespace {

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

bool Decays(const GradientAndVariable& entry, const WeightDecay& decay) {
  if (entry.gradient.empty()) return false;
  if (decay.excluded) return !decay.excluded(entry.variable.node->name());
  return entry.variable.shape().rank() >= 2;
}

// What is to be subtracted is computed from the value that the step starts with, as every read of a
// variable is; only the subtraction waits for the update.
const Node* Decay(const GradientAndVariable& entry, Output share, const Node* updates) {
  const Output variable = entry.variable;
  Graph& graph = variable.graph();
  DeviceScope device(graph, variable.node->device());
  Output factor = As(share, variable.dtype());
  if (entry.scale) {
    factor = Mul(factor, Cast(NotEqual(As(entry.scale, kFloat32), 0.0f), variable.dtype()));
  }
  if (!entry.gradient.sparse()) {
    const Output change = Mul(variable, factor);
    ControlScope after(graph, {updates});
    return AssignSub(variable, change).node;
  }
  const Output rows = Unique(Reshape(entry.gradient.indices, Shape{-1})).values;
  const Output change = Mul(Gather(variable, rows), factor);
  ControlScope after(graph, {updates});
  return ScatterSub(variable, rows, change).node;
}

}  // namespace

std::vector<const Node*> DecayWeights(std::span<const GradientAndVariable> list,
                                      const WeightDecay& decay, Output learning_rate,
                                      const Node* updates) {
  if (!(decay.rate >= 0) || !std::isfinite(decay.rate)) {
    ThrowInvalidArgument(fmt::format(
        "weight decay: the rate is {}; expected a finite number, 0 for none", decay.rate));
  }
  std::vector<const Node*> nodes;
  if (decay.rate == 0) return nodes;
  NameScope scope(learning_rate.graph(), "decay");
  const Output share = Mul(learning_rate, decay.rate);
  for (const GradientAndVariable& entry : list) {
    if (Decays(entry, decay)) nodes.push_back(Decay(entry, share, updates));
  }
  return nodes;
}

}  // namespace tutti
