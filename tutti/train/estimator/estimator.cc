// A training is a graph (training_graph.cc) and a loop. Every worker runs the same loop on its
// slice of every global batch; what they must agree on (whether to stop, the joint loss) comes out
// of the step itself.
#include "tutti/train/estimator/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "tutti/base/checked.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/seed.h"
#include "tutti/nn/variables.h"
#include "tutti/train/estimator/agreement.h"
#include "tutti/train/estimator/bad_values.h"
#include "tutti/train/estimator/evaluation.h"
#include "tutti/train/estimator/joint_stop.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/reporting/progress.h"
#include "tutti/train/reporting/training_report.h"
#include "tutti/train/reporting/worker_trace.h"
#include "tutti/train/stop.h"

namespace tutti {
namespace {

constexpr int kPrefetch = 2;
constexpr int64_t kTracedStep = 10;  // by then everything is warm

}  // namespace

class Estimator::Impl {
 public:
  Impl(ModelFunction model, const RunConfig& config) : model_(std::move(model)), config_(config) {
    if (!model_) ThrowInvalidArgument("Estimator: the model function is empty");
    config_.Join();
    placer_ = config_.strategy_object->MakePlacer();
    SetSeed(graph_, config_.seed);
  }

  TrainResult Train(const TrainSpec& spec) {
    if (!spec.input) ThrowInvalidArgument("Estimator::Train: TrainSpec::input is empty");
    const bool lockstep = config_.strategy_object->InLockstep();
    const Dataset dataset =
        lockstep ? spec.input()
                       .Batch(GlobalBatch())
                       .Shard(config_.rank(), config_.workers())
                       .Prefetch(kPrefetch)
                 : spec.input().Batch(GlobalBatch() / config_.workers()).Prefetch(0);
    const int64_t max_steps = spec.max_steps > 0 ? spec.max_steps : config_.max_steps;
    const bool first = training_.nodes.update == nullptr;
    if (first) BuildToTrain(dataset);
    if (spec.evaluation) BuildToEvaluate(EvaluationData(*spec.evaluation));
    Agree(fmt::format("Train (call {})", ++trainings_), first, DataFacts(dataset, max_steps));
    if (first) {
      InitializeState();
      if (lockstep && WantsWorkerTraces(config_)) {
        traced_step_ = std::min(kTracedStep, max_steps - 1);
      }
      if (leads()) ShowStart(config_, graph_, dataset, How());
    }
    return Loop(dataset, max_steps);
  }

  Metrics Evaluate(const EvalSpec& spec) {
    const Dataset dataset = EvaluationData(spec);
    const bool first = !evaluation_;
    BuildToEvaluate(dataset);
    Agree(fmt::format("Evaluate (call {})", ++evaluations_), first,
          DataFacts(dataset, spec.max_steps));
    if (!session_) InitializeState();
    return evaluation_->Run(*session_, dataset, spec.max_steps, peers());
  }

  bool leads() const { return config_.leads(); }

  std::map<std::string, Tensor> Variables() {
    if (!session_) ThrowInvalidArgument("Estimator::Variables: call Train or Evaluate first");
    const std::vector<Output> variables = nn::Variables(graph_);
    const std::vector<Tensor> values = session_->Run(std::span<const Feed>(), variables);
    std::map<std::string, Tensor> named;
    for (size_t i = 0; i < variables.size(); ++i) named[variables[i].node->name()] = values[i];
    return named;
  }

 private:
  Peers& peers() const { return config_.strategy_object->peers(); }

  int64_t GlobalBatch() const {
    const int64_t towers = config_.workers() * int64_t(config_.strategy_object->Devices().size());
    const auto batch = CheckedMul(config_.batch_size, towers);
    if (!batch) {
      ThrowInvalidArgument(
          fmt::format("Estimator: batch_size is {}, which {} workers together would make more than "
                      "2^63 samples",
                      config_.batch_size, towers));
    }
    return *batch;
  }

  Dataset EvaluationData(const EvalSpec& spec) const {
    if (!spec.input) ThrowInvalidArgument("Estimator::Evaluate: EvalSpec::input is empty");
    const Dataset dataset =
        spec.input().Batch(spec.batch_size).Shard(config_.rank(), config_.workers());
    if (dataset.epochs() < 0 && spec.max_steps == 0) {
      ThrowInvalidArgument(
          "Estimator::Evaluate: the dataset repeats for ever, so its evaluation would not end; "
          "leave out Repeat(), or set EvalSpec::max_steps");
    }
    return dataset;
  }

  // What places the variables that are made meanwhile; empty: nothing does.
  VariablePlacementScope::Place Placement() {
    if (placer_ == nullptr) return nullptr;
    return [this](const VariableRequest& request) { return placer_->Place(request); };
  }

  // The mode that is built first makes the variables, the second one finds them.
  void BuildToTrain(const Dataset& dataset) {
    const VariablePlacementScope placement(Placement());
    std::optional<nn::ReuseScope> reuse;
    if (evaluation_) reuse.emplace(graph_, "", "training");
    training_ = BuildTraining(graph_, model_, config_, dataset);
  }
  void BuildToEvaluate(const Dataset& dataset) {
    if (evaluation_) return;
    const VariablePlacementScope placement(Placement());
    evaluation_.emplace(graph_, model_, dataset, /*reuse=*/training_.nodes.update != nullptr);
  }

  void Agree(std::string_view call, bool built, const std::vector<Fact>& data) {
    if (config_.workers() == 1) return;
    std::vector<Fact> facts;
    if (built) facts = ModelFacts(graph_, config_, training_.nodes.joint.how);
    facts.insert(facts.end(), data.begin(), data.end());
    RequireAgreement(peers(), call, facts);
  }

  // Gives the variables that have none their first values, the same on all workers.
  void InitializeState() {
    if (!session_) {
      SessionOptions options;
      options.job = config_.job;
      options.task = config_.task;
      config_.strategy_object->Configure(options);
      session_.emplace(graph_, options);
    }
    config_.strategy_object->Initialize(graph_, *session_);
  }

  // How gradients travel and where variables are, for people.
  std::string How() const {
    std::string text = training_.nodes.joint.how;
    const std::string placed = placer_ == nullptr ? "" : placer_->Describe();
    if (!placed.empty()) text += (text.empty() ? "" : "\n") + placed;
    return text;
  }

  TrainResult Loop(const Dataset& dataset, int64_t max_steps) {
    const auto driver = config_.strategy_object->MakeDriver(
        *session_, training_.nodes, {.first = step_, .end = max_steps});
    BatchByNumber batches(dataset);
    std::optional<Progress> progress;
    if (leads()) {
      progress.emplace(ProgressOptions{.label = "step", .total = max_steps, .start = step_});
    }
    TrainingReport report(config_, training_.nodes.joint.how);
    double loss = 0;
    bool stop = false, out_of_data = false;
    int64_t samples = -1;  // of this worker in the last step; -1: there was no step
    for (int64_t number; !stop && (number = driver->NextBatch()) >= 0;) {
      Minibatch batch;
      const int64_t asked = NowNanos();
      if (out_of_data = !batches.Read(number, &batch); out_of_data) break;
      report.CountInput(NowNanos() - asked);
      samples = batch.count;
      const StepResult result = RunStep(*driver, batch, dataset.batch_size());
      loss = result.loss;
      stop = result.stop;
      report.CountStep(result.samples);
      if (progress) progress->Update(step_, {{"loss", loss}});
      if (leads() && config_.log_every > 0 && step_ % config_.log_every == 0) {
        FormatTo(stderr, "step {} loss {:.6f}\n", step_, loss);
      }
    }
    if (progress) progress->Finish();
    driver->Leave();
    TrainResult result = report.Finish(loss, driver->Report());
    result.stopped = stop;
    if (samples >= 0) {
      CheckLastUpdate(peers(), *session_, training_.spec.loss, feeds_, samples, step_);
    }
    if (stop) TellStop(AgreeOnStop(peers()), max_steps);
    if (out_of_data && leads()) TellEndOfData(dataset, max_steps);
    return result;
  }

  void TellStop(const JointStop& stop, int64_t max_steps) const {
    if (!leads()) return;
    FormatTo(stderr, "{}: stopped after step {} of {} by {}\n", config_.program, step_, max_steps,
             DescribeStop(stop));
  }
  void TellEndOfData(const Dataset& dataset, int64_t max_steps) const {
    FormatTo(
        stderr,
        "{}: the data ended after step {} of {}: {} samples, {} a step; Dataset::Repeat() goes "
        "through them again\n",
        config_.program, step_, max_steps, dataset.samples(), dataset.batch_size());
  }

  StepResult RunStep(StepDriver& driver, const Minibatch& batch, int64_t global_batch) {
    feeds_.clear();
    training_.Feed(batch, global_batch, feeds_);
    feeds_.emplace_back(training_.stop, Tensor::Scalar(StopRequested() ? 1.0f : 0.0f));
    const bool traced = step_ == traced_step_;
    RunTrace trace;
    const StepResult result =
        driver.Run(feeds_, {.trace = traced, .trace_result = traced ? &trace : nullptr});
    step_ = result.step;
    if (traced) WriteWorkerTraces(config_, trace);
    if (!std::isfinite(result.loss)) {
      // Workers that are not in lockstep do not come here together.
      AlonePeers alone;
      Peers& who = config_.strategy_object->InLockstep() ? peers() : alone;
      ThrowBadValues(who, config_.rank(), *session_, training_.spec.loss, feeds_, result);
    }
    return result;
  }

  const ModelFunction model_;
  RunConfig config_;  // stays as it is after the constructor
  std::unique_ptr<VariablePlacer> placer_;
  Graph graph_;
  TrainingGraph training_;
  std::optional<Session> session_;
  std::optional<Evaluation> evaluation_;
  int64_t trainings_ = 0;  // calls of Train
  int64_t evaluations_ = 0;
  int64_t step_ = 0;
  int64_t traced_step_ = -1;  // the same on all workers; -1: none
  std::vector<Feed> feeds_;
};

Estimator::Estimator(ModelFunction model, const RunConfig& config)
    : impl_(std::make_unique<Impl>(std::move(model), config)) {}
Estimator::~Estimator() = default;

TrainResult Estimator::Train(const TrainSpec& spec) { return impl_->Train(spec); }
Metrics Estimator::Evaluate(const EvalSpec& spec) { return impl_->Evaluate(spec); }
bool Estimator::leads() const { return impl_->leads(); }
std::map<std::string, Tensor> Estimator::Variables() { return impl_->Variables(); }

Metrics TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval) {
  TrainSpec checked = train;
  checked.evaluation = eval;
  if (estimator.Train(checked).stopped) return {};
  const Metrics metrics = estimator.Evaluate(eval);
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += name == "accuracy" ? fmt::format("  {} {:.2f}%", name, 100 * value)
                               : fmt::format("  {} {:.4f}", name, value);
  }
  if (estimator.leads()) FormatTo(stdout, "test{}\n", text.substr(1));
  return metrics;
}

}  // namespace tutti
