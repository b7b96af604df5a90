#include "tutti/train/estimator/towers.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/sample_scope.h"

namespace tutti {
namespace {

// value x weight; 0 for a tower without samples, whatever its mean is then.
Output Weighted(Output value, Output weight) {
  const Output factor = weight.dtype() == value.dtype() ? weight : Cast(weight, value.dtype());
  return Select(Greater(weight, 0.0), Mul(value, factor), ZerosLike(value));
}

}  // namespace

ModelSpec BuildTower(Graph& graph, const ModelFunction& model, const Columns& example,
                     std::string_view device, std::vector<BatchInputs>& inputs) {
  std::optional<DeviceScope> on;
  if (!device.empty()) on.emplace(graph, device);
  std::optional<nn::ReuseScope> reuse;
  if (!inputs.empty()) reuse.emplace(graph, "", fmt::format("tower_{}", inputs.size()));
  const BatchInputs& made = inputs.emplace_back(graph, example, "input");
  const nn::SampleScope samples(made.first, Cast(made.samples, kInt64));
  return model(Features(made.columns, made.first), Mode::kTrain);
}

Towers JoinTowers(std::span<const BatchInputs> inputs, std::span<const Output> losses) {
  if (inputs.size() == 1) return {losses[0], inputs[0].samples, {}};
  Graph& graph = losses[0].graph();
  NameScope scope(graph, "towers");
  Towers towers;
  std::vector<Output> counts, parts;
  for (const BatchInputs& tower : inputs) counts.push_back(tower.samples);
  towers.samples = AddN(counts);
  // float64, so that towers follow one model closely.
  const Output all = Maximum(Cast(towers.samples, kFloat64), 1.0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    towers.weights.push_back(Div(Cast(counts[i], kFloat64), all));
    parts.push_back(Weighted(losses[i], towers.weights[i]));
  }
  towers.loss = AddN(parts);
  return towers;
}

std::vector<StateChange> Towers::Join(std::span<const StateChange> of_towers) const {
  if (weights.empty()) return {of_towers.begin(), of_towers.end()};
  std::vector<Output> order;
  std::unordered_map<Output, std::vector<Output>, OutputHash> changes;  // by variable
  for (const auto& [variable, change] : of_towers) {
    std::vector<Output>& found = changes[variable];
    if (found.empty()) order.push_back(variable);
    found.push_back(change);
  }
  std::vector<StateChange> joined;
  for (const Output& variable : order) {
    std::vector<Output>& parts = changes[variable];
    const DeviceScope device(variable.graph(), *variable.node);
    // Towers are built one after the other, and each layer's update once in each of them.
    for (size_t i = 0; i < parts.size() && i < weights.size(); ++i) {
      parts[i] = Weighted(parts[i], weights[i]);
    }
    joined.push_back({variable, AddN(parts)});
  }
  return joined;
}

}  // namespace tutti
