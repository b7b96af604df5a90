#include "tutti/train/estimator/training_graph.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text/format.h"
#include "tutti/nn/sample_scope.h"
#include "tutti/train/estimator/towers.h"
#include "tutti/nn/variables.h"

namespace tutti {
namespace {

// A loss that is no number changes nothing, so that what made it can be looked for.
void ScaleByFinite(Output loss, std::vector<GradientAndVariable>& list) {
  const Output finite =
      Cast(IsFinite(loss.dtype() == kFloat32 ? loss : Cast(loss, kFloat32)), kFloat32);
  for (GradientAndVariable& entry : list) {
    if (!entry.gradient.empty()) entry = Scaled(entry, finite);
  }
}

// The text of a graph with this worker's own devices left out, which differ from worker to worker.
std::string WithoutDevices(std::string text, const RunConfig& config) {
  for (const std::string& device : config.strategy_object->Devices()) {
    if (device.empty()) continue;
    for (size_t at = 0; (at = text.find(device, at)) != text.npos;) text.erase(at, device.size());
  }
  return text;
}

}  // namespace

TrainingGraph BuildTraining(Graph& graph, const ModelFunction& model, const RunConfig& config,
                            const Dataset& dataset) {
  const Strategy& strategy = *config.strategy_object;
  TrainingGraph training;
  training.stop = Placeholder(graph, kFloat32, Shape{}, "stop");
  // Random layers take the global step, which must therefore be there before the model.
  GlobalStep(graph);
  std::vector<Output> losses;
  for (const std::string& device : strategy.Devices()) {
    const ModelSpec tower = BuildTower(graph, model, ExampleOf(dataset), device, training.inputs);
    if (losses.empty()) training.spec = tower;
    losses.push_back(RequireFloatScalar(tower.loss, "loss"));
  }
  const Towers towers = JoinTowers(training.inputs, losses);
  training.spec.loss = towers.loss;
  const double clip_norm = training.spec.clip_norm;
  if (!(clip_norm >= 0) || !std::isfinite(clip_norm)) {
    ThrowInvalidArgument(fmt::format(
        "the model function gave a clip_norm of {}; expected a finite number, 0 for none",
        clip_norm));
  }
  if (training.spec.optimizer == nullptr) {
    ThrowInvalidArgument("the model function gave no optimizer for Mode::kTrain");
  }
  const Optimizer& optimizer = *training.spec.optimizer;
  const WorkerStep step = {towers.loss, towers.samples, training.stop};
  const auto computed = optimizer.Gradients(strategy.Differentiated(step));
  const DeviceScope device(graph, strategy.UpdateDevice());
  JointStep& joint = training.nodes.joint;
  auto list = strategy.Aggregate(computed, step, &joint);
  ScaleByFinite(joint.loss, list);
  if (clip_norm > 0) list = ClipByGlobalNorm(list, clip_norm);
  const auto join_state = [&](std::span<const StateChange> of_towers) {
    std::vector<StateChange> joined = towers.Join(of_towers);
    std::vector<Output> changes;
    for (const StateChange& entry : joined) changes.push_back(entry.change);
    changes = strategy.AggregateState(changes, step, joint);
    for (size_t i = 0; i < joined.size(); ++i) joined[i].change = changes[i];
    return joined;
  };
  training.nodes.update = optimizer.Apply(
      list, {.counted = strategy.InLockstep() ? nullptr : &training.nodes.counted,
             .computed = computed,
             .join_state = join_state});
  strategy.Complete(training.nodes, step);
  return training;
}

void TrainingGraph::Feed(const Minibatch& batch, int64_t global_batch,
                         std::vector<tutti::Feed>& feeds) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].Feed(PartOf(batch, int(i), int(inputs.size())), global_batch, feeds);
  }
}

std::vector<Fact> ModelFacts(const Graph& graph, const RunConfig& config, std::string_view how) {
  std::vector<Fact> facts = {{"program", config.program},
                             {"strategy", config.strategy},
                             {"batch-size", fmt::format("{}", config.batch_size)},
                             {"seed", fmt::format("{}", config.seed)},
                             {"learning-rate", fmt::format("{}", config.learning_rate)},
                             {"scale-learning-rate", config.scale_learning_rate ? "on" : "off"},
                             {"warmup-steps", fmt::format("{}", config.warmup_steps)}};
  for (const auto& [name, value] : config.strategy_flags) facts.emplace_back(name, value);
  for (const Output& variable : nn::Variables(graph)) {
    facts.emplace_back(fmt::format("variable {}", variable.node->name()),
                       fmt::format("{} {}", NameOf(variable.dtype()), variable.shape().ToString()));
  }
  facts.emplace_back("buckets", how);
  facts.emplace_back("digest of the graph", Digest(WithoutDevices(ToText(graph), config)));
  return facts;
}

std::vector<Fact> DataFacts(const Dataset& dataset, int64_t max_steps) {
  const auto seed = dataset.shuffle_seed();
  return {{"max-steps", fmt::format("{}", max_steps)},
          {"batch size of the dataset", fmt::format("{}", dataset.batch_size())},
          {"samples of the dataset", fmt::format("{}", dataset.samples())},
          {"epochs of the dataset",
           dataset.epochs() < 0 ? "endless" : fmt::format("{}", dataset.epochs())},
          {"seed of Shuffle", seed ? fmt::format("{}", *seed) : "none"},
          {"columns", DescribeTypes(dataset.columns())}};
}

}  // namespace tutti
