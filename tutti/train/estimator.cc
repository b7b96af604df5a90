// A training is a graph (training_graph.cc) and a loop. Every worker runs the same loop on its
// slice of every global batch; what they must agree on (whether to stop, the joint loss) comes out
// of the step itself.
#include "tutti/train/estimator.h"

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
#include "tutti/nn/seed.h"
#include "tutti/nn/variables.h"
#include "tutti/train/agreement.h"
#include "tutti/train/bad_values.h"
#include "tutti/train/evaluation.h"
#include "tutti/train/main.h"
#include "tutti/train/progress.h"
#include "tutti/train/training_graph.h"
#include "tutti/train/training_report.h"
#include "tutti/train/worker_trace.h"

namespace tutti {
namespace {

constexpr int kPrefetch = 2;
constexpr int64_t kTracedStep = 10;  // by then everything is warm

}  // namespace

class Estimator::Impl {
 public:
  Impl(ModelFunction model, const RunConfig& config) : model_(std::move(model)), config_(config) {
    if (config_.strategy_object == nullptr) {
      ThrowInvalidArgument(
          "Estimator: the RunConfig has no strategy; take the one that Main gives");
    }
    if (!model_) ThrowInvalidArgument("Estimator: the model function is empty");
    SetSeed(graph_, config_.seed);
  }

  TrainResult Train(const TrainSpec& spec) {
    if (!spec.input) ThrowInvalidArgument("Estimator::Train: TrainSpec::input is empty");
    const Dataset dataset = spec.input()
                                .Batch(GlobalBatch())
                                .Shard(config_.rank(), config_.workers())
                                .Prefetch(kPrefetch);
    const int64_t max_steps = spec.max_steps > 0 ? spec.max_steps : config_.max_steps;
    if (!session_) Prepare(dataset, max_steps);
    return Loop(dataset, max_steps);
  }

  Metrics Evaluate(const EvalSpec& spec) {
    if (!spec.input) ThrowInvalidArgument("Estimator::Evaluate: EvalSpec::input is empty");
    const Dataset dataset =
        spec.input().Batch(spec.batch_size).Shard(config_.rank(), config_.workers());
    if (!session_) ThrowInvalidArgument("Estimator::Evaluate: call Train first");
    if (!evaluation_) evaluation_.emplace(graph_, model_, dataset);
    return evaluation_->Run(*session_, dataset, config_.communicator.get());
  }

  bool leads() const { return config_.leads(); }

  std::map<std::string, Tensor> Variables() {
    if (!session_) ThrowInvalidArgument("Estimator::Variables: call Train first");
    const std::vector<Output> variables = nn::Variables(graph_);
    const std::vector<Tensor> values = session_->Run(std::span<const Feed>(), variables);
    std::map<std::string, Tensor> named;
    for (size_t i = 0; i < variables.size(); ++i) named[variables[i].node->name()] = values[i];
    return named;
  }

 private:
  int64_t GlobalBatch() const {
    const auto batch = CheckedMul(config_.batch_size, config_.workers());
    if (!batch) {
      ThrowInvalidArgument(
          fmt::format("Estimator: batch_size is {}, which {} workers together would make more than "
                      "2^63 samples",
                      config_.batch_size, config_.workers()));
    }
    return *batch;
  }

  void Prepare(const Dataset& dataset, int64_t max_steps) {
    training_ = BuildTraining(graph_, model_, config_, dataset);
    if (config_.communicator != nullptr) {
      RequireAgreement(*config_.communicator,
                       FactsOf(graph_, training_, config_, dataset, max_steps));
    }
    SessionOptions options;
    options.job = config_.job;
    options.task = config_.task;
    options.communicator = config_.communicator;
    session_.emplace(graph_, options);
    session_->Initialize();
    if (const Node* synchronize = config_.strategy_object->SynchronizeState(graph_)) {
      session_->RunTargets({}, {synchronize});
    }
    if (WantsWorkerTraces(config_)) traced_step_ = std::min(kTracedStep, max_steps - 1);
    if (leads()) ShowStart(config_, graph_, dataset, training_.joint.how);
  }

  TrainResult Loop(const Dataset& dataset, int64_t max_steps) {
    const auto reader = dataset.Read(step_);
    std::optional<Progress> progress;
    if (leads()) progress.emplace(ProgressOptions{.label = "step", .total = max_steps});
    TrainingReport report(config_, training_.joint.how);
    double loss = 0;
    bool stop = false;
    while (step_ < max_steps && !stop) {
      Minibatch batch;
      const int64_t asked = NowNanos();
      if (!reader->Next(&batch)) break;
      report.CountInput(NowNanos() - asked);
      stop = RunStep(batch, dataset.batch_size(), &loss);
      report.CountStep(double(fetched_[kSamples].scalar<float>()));
      if (progress) progress->Update(step_, {{"loss", loss}});
      if (leads() && config_.log_every > 0 && step_ % config_.log_every == 0) {
        FormatTo(stderr, "step {} loss {:.6f}\n", step_, loss);
      }
    }
    if (progress) progress->Finish();
    TrainResult result = report.Finish(loss);
    result.stopped = stop;
    return result;
  }

  // One update. True if the training should end after it.
  bool RunStep(const Minibatch& batch, int64_t global_batch, double* loss) {
    feeds_.clear();
    training_.inputs.Feed(batch, global_batch, feeds_);
    feeds_.emplace_back(training_.stop, Tensor::Scalar(StopRequested() ? 1.0f : 0.0f));
    const bool traced = step_ == traced_step_;
    RunTrace trace;
    const JointStep& joint = training_.joint;
    const Output fetches[kFetches] = {joint.loss, joint.samples, joint.stop};
    const Node* const targets[] = {training_.train};
    session_->RunInto(feeds_, fetches, targets, fetched_,
                      {.trace = traced, .trace_result = traced ? &trace : nullptr});
    *loss = fetched_[kLoss].dtype() == kFloat64 ? fetched_[kLoss].scalar<double>()
                                                : double(fetched_[kLoss].scalar<float>());
    ++step_;
    if (traced) WriteWorkerTraces(config_, trace);
    if (!std::isfinite(*loss)) {
      ThrowBadValues(config_, *session_, training_.spec.loss, feeds_, step_, *loss);
    }
    return fetched_[kStop].scalar<float>() > 0;
  }

  enum { kLoss, kSamples, kStop, kFetches };

  const ModelFunction model_;
  const RunConfig config_;
  Graph graph_;
  TrainingGraph training_;
  std::optional<Session> session_;
  std::optional<Evaluation> evaluation_;
  int64_t step_ = 0;
  int64_t traced_step_ = -1;  // the same on all workers; -1: none
  std::vector<Feed> feeds_;
  Tensor fetched_[kFetches];
};

Estimator::Estimator(ModelFunction model, const RunConfig& config)
    : impl_(std::make_unique<Impl>(std::move(model), config)) {}
Estimator::~Estimator() = default;

TrainResult Estimator::Train(const TrainSpec& spec) { return impl_->Train(spec); }
Metrics Estimator::Evaluate(const EvalSpec& spec) { return impl_->Evaluate(spec); }
bool Estimator::leads() const { return impl_->leads(); }
std::map<std::string, Tensor> Estimator::Variables() { return impl_->Variables(); }

Metrics TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval) {
  if (estimator.Train(train).stopped) return {};
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
