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
  training.inputs = BatchInputs(graph, ExampleOf(dataset), "input");
  training.stop = Placeholder(graph, kFloat32, Shape{}, "stop");
  {
    // Random layers take the global step, which must therefore be there before the model.
    GlobalStep(graph);
    nn::SampleScope samples(training.inputs.first, Cast(training.inputs.samples, kInt64));
    training.spec = model(Features(training.inputs.columns, training.inputs.first), Mode::kTrain);
  }
  const ModelSpec& spec = training.spec;
  CheckSpec(spec);
  training.model_nodes = graph.size();
  const Optimizer& optimizer = *spec.optimizer;
  const std::vector<Output> variables = Trained(graph, spec);
  WorkerStep step = {spec.loss, training.inputs.samples, training.stop, order};
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
  auto list = optimizer.Gradients(differentiated, variables);
  parts.ToRows(list);
  list = strategy.Aggregate(list, step, &training.joint);
  training.gradients = list;
  ScaleByFinite(training.joint.loss, list);
  if (config.Shows("gradient-norm")) training.gradient_norm = GlobalNorm(training.gradients);
  if (spec.clip_norm > 0) list = ClipByGlobalNorm(list, spec.clip_norm);
  training.train = optimizer.Apply(list, {.join_state = [&](std::span<const Output> changes) {
                                     return strategy.AggregateState(changes, step, training.joint);
                                   }});
  training.learning_rate = optimizer.learning_rate().Build(GlobalStep(graph));
  const auto decays = DecayWeights(list, spec.weight_decay, training.learning_rate, training.train);
  beside.insert(beside.end(), decays.begin(), decays.end());
  if (!beside.empty()) {
    beside.push_back(training.train);
    training.train = Group(graph, beside);
  }
  return training;
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
  facts.emplace_back("digest of the graph", Digest(ToText(graph)));
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
