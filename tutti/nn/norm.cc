#include "tutti/nn/norm.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/norm.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/nn/initializers.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {
namespace {

// On the update of a moving average: the name of the node that normalises by the batch.
constexpr const char* kUpdateOf = "_state_update_of";

void MoveAverage(Output average, Output batch, double momentum, const Node& user) {
  const Output step = Mul(Sub(average, StopGradient(batch)), 1 - momentum);
  OpBuilder("AssignSub", "").In(average).In(step).Attr(kUpdateOf, user.name()).Build();
}

}  // namespace

Output LayerNorm(Input x, const LayerNormOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "LayerNorm");
  const int64_t width = KnownDim(x, -1, "LayerNorm");
  NameScope scope(graph, name);
  const Output scale = GetWeights(x, "LayerNorm", Ones, {width}, "scale");
  const Output offset = GetWeights(x, "LayerNorm", Zeros, {width}, "offset");
  return tutti::LayerNorm(x, scale, offset, {.epsilon = options.epsilon}).y;
}

Output BatchNorm(Input x, const BatchNormOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "BatchNorm");
  const int64_t channels = KnownDim(x, -1, "BatchNorm");
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    ThrowInvalidArgument(
        fmt::format("BatchNorm: momentum is {}; expected 0 to 1", options.momentum));
  }
  NameScope scope(graph, name);
  const auto variable = [&](const InitializerOf& initializer, std::string_view called,
                            bool trainable) {
    return GetWeights(x, "BatchNorm", initializer, {channels}, called, {.trainable = trainable});
  };
  const Output scale = variable(Ones, "scale", true);
  const Output offset = variable(Zeros, "offset", true);
  const Output mean = variable(Zeros, "moving_mean", false);
  const Output variance = variable(Ones, "moving_variance", false);
  const NormOptions norm{.epsilon = options.epsilon};
  if (!options.training) return BatchNormInference(x, scale, offset, mean, variance, norm);
  const BatchNormResult result = tutti::BatchNorm(x, scale, offset, norm);
  MoveAverage(mean, result.mean, options.momentum, *result.y.node);
  MoveAverage(variance, result.variance, options.momentum, *result.y.node);
  return result.y;
}

std::vector<const Node*> StateUpdates(const Graph& graph, std::vector<const Node*>* users) {
  std::vector<const Node*> updates;
  for (const auto& node : graph.nodes()) {
    const AttrValue* user = FindAttr(node->attrs(), kUpdateOf);
    if (user == nullptr || !std::holds_alternative<std::string>(*user)) continue;
    updates.push_back(node.get());
    if (users != nullptr) users->push_back(graph.Find(std::get<std::string>(*user)));
  }
  return updates;
}

}  // namespace tutti::nn
