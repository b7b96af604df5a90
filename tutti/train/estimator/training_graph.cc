#include "tutti/train/estimator/training_graph.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text/format.h"
#include "tutti/nn/sample_scope.h"
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
  RequireFloatScalar(training.spec.loss, "loss");
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
  const WorkerStep step = {training.spec.loss, training.inputs.samples, training.stop, order};
  auto list = optimizer.Gradients(strategy.Differentiated(step));
  list = strategy.Aggregate(list, step, &training.joint);
  ScaleByFinite(training.joint.loss, list);
  if (clip_norm > 0) list = ClipByGlobalNorm(list, clip_norm);
  training.train = optimizer.Apply(list, {.join_state = [&](std::span<const Output> changes) {
                                     return strategy.AggregateState(changes, step, training.joint);
                                   }});
  return training;
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
