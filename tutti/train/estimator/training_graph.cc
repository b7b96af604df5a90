#include "tutti/train/estimator/training_graph.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text/format.h"
#include "tutti/nn/sample_scope.h"
#include "tutti/nn/variables.h"
#include "tutti/train/estimator/accumulation.h"
#include "tutti/train/estimator/towers.h"

namespace tutti {
namespace {

constexpr int64_t kMostParts = 1 << 20;  // of an update

// A loss that is no number changes nothing, so that what made it can be looked for.
void ScaleByFinite(Output loss, std::vector<GradientAndVariable>& list) {
  const Output finite =
      Cast(IsFinite(loss.dtype() == kFloat32 ? loss : Cast(loss, kFloat32)), kFloat32);
  for (GradientAndVariable& entry : list) {
    if (!entry.gradient.empty()) entry = Scaled(entry, finite);
  }
}

// Makes the gradients of a sum over samples those of the mean.
void DivideBySamples(Output samples, std::vector<GradientAndVariable>& list) {
  const Output inverse = Div(1.0f, Maximum(samples, 1.0f));
  for (GradientAndVariable& entry : list) {
    if (!entry.gradient.empty()) entry = Scaled(entry, inverse);
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

void CheckSpec(const ModelSpec& spec) {
  RequireFloatScalar(spec.loss, "loss");
  if (!(spec.clip_norm >= 0) || !std::isfinite(spec.clip_norm)) {
    ThrowInvalidArgument(fmt::format(
        "the model function gave a clip_norm of {}; expected a finite number, 0 for none",
        spec.clip_norm));
  }
  if (spec.optimizer == nullptr) {
    ThrowInvalidArgument("the model function gave no optimizer for Mode::kTrain");
  }
  if (spec.accumulate < 1 || spec.accumulate > kMostParts) {
    ThrowInvalidArgument(fmt::format(
        "the model function gave an accumulate of {}; expected 1 to {}, the parts of an update",
        spec.accumulate, kMostParts));
  }
}

// What the parts of an update leave is in variables, which all workers would share.
[[noreturn]] void RefuseAccumulation(const ModelSpec& spec, const Strategy& strategy) {
  ThrowInvalidArgument(
      fmt::format("the model function gave an accumulate of {}, and strategy {} keeps variables on "
                  "servers, where the workers' sums would mix; expected 1: take a larger "
                  "--batch-size, more workers, or strategy local, mirrored or allreduce",
                  spec.accumulate, strategy.name()));
}

// The variables that are to be trained.
std::vector<Output> Trained(const Graph& graph, const ModelSpec& spec) {
  std::vector<Output> variables = nn::TrainableVariables(graph);
  if (!spec.trains) return variables;
  const size_t all = variables.size();
  std::erase_if(variables, [&](Output v) { return !spec.trains(v.node->name()); });
  if (variables.empty()) {
    ThrowInvalidArgument(fmt::format(
        "ModelSpec::trains leaves none of the {} trainable variables; expected at least one", all));
  }
  return variables;
}

}  // namespace

TrainingGraph BuildTraining(Graph& graph, const ModelFunction& model, const RunConfig& config,
                            const Dataset& dataset, const SumOrder& order) {
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
  const ModelSpec& spec = training.spec;
  CheckSpec(spec);
  training.model_nodes = graph.size();
  const Optimizer& optimizer = *spec.optimizer;
  const std::vector<Output> variables = Trained(graph, spec);
  WorkerStep step = {towers.loss, towers.samples, training.stop, order};
  Output differentiated;
  Accumulation parts;
  std::vector<const Node*> beside;  // what runs with the update
  if (spec.accumulate > 1) {
    parts = BuildAccumulation(step, strategy, optimizer, variables);
    step = parts.step;
    differentiated = parts.differentiated;
    training.accumulate = parts.add;
    beside.push_back(parts.clear);
  } else {
    differentiated = strategy.Differentiated(step);
  }
  auto computed = optimizer.Gradients(differentiated, variables);
  parts.ToRows(computed);
  const DeviceScope device(graph, strategy.UpdateDevice());
  StepNodes& nodes = training.nodes;
  auto list = strategy.Aggregate(computed, step, &nodes.joint);
  if (spec.accumulate > 1 && nodes.joint.nodes != nullptr) RefuseAccumulation(spec, strategy);
  const bool shows_norm = config.Shows("gradient-norm");
  if (nodes.joint.nodes == nullptr) {
    training.gradients = list;
    if (shows_norm) training.gradient_norm = GlobalNorm(list);
  } else {
    // The update is a run of its own: a worker has only its own gradients.
    const DeviceScope own(graph, towers.loss.node->device());
    training.gradients = computed;
    // What a strategy differentiates instead of the mean over samples is their sum.
    if ((shows_norm || config.histograms) && differentiated != step.loss) {
      DivideBySamples(step.samples, training.gradients);
    }
    if (shows_norm) training.gradient_norm = GlobalNorm(training.gradients);
  }
  ScaleByFinite(nodes.joint.loss, list);
  if (spec.clip_norm > 0) list = ClipByGlobalNorm(list, spec.clip_norm);
  const auto join_state = [&](std::span<const StateChange> of_towers) {
    std::vector<StateChange> joined = towers.Join(of_towers);
    std::vector<Output> changes;
    for (const StateChange& entry : joined) changes.push_back(entry.change);
    changes = strategy.AggregateState(changes, step, nodes.joint);
    for (size_t i = 0; i < joined.size(); ++i) joined[i].change = changes[i];
    return joined;
  };
  nodes.update =
      optimizer.Apply(list, {.counted = nodes.joint.nodes == nullptr ? nullptr : &nodes.counted,
                             .computed = computed,
                             .join_state = join_state});
  training.learning_rate = optimizer.learning_rate().Build(GlobalStep(graph));
  const auto decays = DecayWeights(list, spec.weight_decay, training.learning_rate, nodes.update);
  beside.insert(beside.end(), decays.begin(), decays.end());
  if (!beside.empty()) {
    beside.push_back(nodes.update);
    nodes.update = Group(graph, beside);
  }
  strategy.Complete(nodes, step);
  return training;
}

void TrainingGraph::Feed(const Minibatch& batch, int64_t global_batch,
                         std::vector<tutti::Feed>& feeds) const {
  if (inputs.size() == 1) return inputs[0].Feed(batch, global_batch, feeds);
  const std::vector<Minibatch> parts = SplitBatch(batch, int64_t(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].Feed(parts[i], global_batch, feeds);
}

std::vector<Fact> ModelFacts(const Graph& graph, const RunConfig& config, std::string_view how) {
  std::vector<Fact> facts = {{"program", config.program},
                             {"strategy", config.strategy},
                             {"batch-size", fmt::format("{}", config.batch_size)},
                             {"seed", fmt::format("{}", config.seed)},
                             {"learning-rate", fmt::format("{}", config.learning_rate)},
                             {"scale-learning-rate", config.scale_learning_rate ? "on" : "off"},
                             {"warmup-steps", fmt::format("{}", config.warmup_steps)},
                             // They are fetched with the step, so its plan depends on them.
                             {"show", config.show},
                             {"histograms", config.histograms ? "on" : "off"},
                             {"summary-every", fmt::format("{}", config.summary_every)},
                             {"eval-every", fmt::format("{}", config.eval_every)},
                             {"early-stop", config.early_stop}};
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
