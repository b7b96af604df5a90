// A training is a graph (training_graph.cc) and a loop. Every worker runs the same loop on its
// slice of every global batch; what they must agree on (whether to stop, the joint loss) comes out
// of the step itself.
#include "tutti/train/estimator/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "tutti/base/checked.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/seed.h"
#include "tutti/nn/variables.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/checkpoints/checkpoints.h"
#include "tutti/train/checkpoints/warm_start.h"
#include "tutti/train/estimator/agreement.h"
#include "tutti/train/estimator/evaluation.h"
#include "tutti/train/estimator/evaluator.h"
#include "tutti/train/estimator/joint_stop.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/estimator/training_step.h"
#include "tutti/train/export/export_format.h"
#include "tutti/train/export/prediction.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/hooks/hook_list.h"
#include "tutti/train/reporting/training_report.h"
#include "tutti/train/stop.h"

namespace tutti {
namespace {

constexpr int kPrefetch = 2;

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
    if (config_.evaluates()) {
      ThrowInvalidArgument(fmt::format(
          "Estimator::Train: {} evaluates and does not train; call TrainAndEvaluate, which does "
          "what the role of the task asks for",
          config_.role));
    }
    const Dataset source = spec.input();
    const bool first = training_.nodes.update == nullptr;
    const std::string call = fmt::format("Train (call {})", ++trainings_);
    if (first) {
      RequireAgreement(peers(), call, {});
      checkpoints_.emplace(config_, Checkpoints::Use::kTrain);
      checkpoints_->MarkRunning();
      const auto newest = checkpoints_->Find();
      BuildToTrain(source, newest ? newest->order : SumOrder());
    }
    if (!first) checkpoints_->MarkRunning();
    const Dataset dataset = TrainingData(source);
    const int64_t max_steps = MaxSteps(spec, dataset);
    if (spec.evaluation) {
      BuildToEvaluate(EvaluationData(*spec.evaluation));
      CheckMetricFlags(config_, evaluation_->MetricNames());
    }
    Agree(call, first, DataFacts(dataset, max_steps));
    if (first) {
      RunFacts facts = RunFactsOf(config_, graph_, dataset, training_.nodes.joint.order);
      const bool resumed = InitializeState();
      checkpoints_->BeginTraining(graph_, std::move(facts), step_);
      update_ = TrainingStep(training_, config_, step_);
      if (config_.Tells()) ShowStart(config_, graph_, training_, dataset);
      if (config_.Tells() && placer_ != nullptr) TellPlacement();
      if (config_.Tells() && resumed) TellResume(max_steps);
    }
    std::function<Metrics()> evaluate;
    if (spec.evaluation) evaluate = [this, &spec] { return EvaluateMeanwhile(*spec.evaluation); };
    hooks_ = MakeHooks(config_, spec.hooks, step_, max_steps, evaluate);
    TrainResult result = Loop(dataset, max_steps);
    if (!result.stopped) {
      checkpoints_->MarkFinished(step_, result.stop_reason.empty() ? Until(spec) : "stopped");
    }
    return result;
  }

  Metrics Evaluate(const EvalSpec& spec) {
    const Dataset dataset = EvaluationData(spec);
    const bool first = !evaluation_;
    BuildToEvaluate(dataset);
    Agree(fmt::format("Evaluate (call {})", ++evaluations_), first,
          DataFacts(dataset, spec.max_steps));
    if (!session_) InitializeState();
    return RunEvaluation(dataset, spec.max_steps, peers());
  }

  Metrics EvaluateCheckpoints(const TrainSpec& train, const EvalSpec& spec) {
    const Dataset dataset = EvaluationData(spec);
    BuildToEvaluate(dataset);
    MakeSession();
    session_->Initialize();
    const std::vector<SavedName> variables = SavedNames(graph_);
    const RestoreNodes restore(config_, graph_, variables, NamesOf(variables));
    return tutti::EvaluateCheckpoints(
        config_, Until(train), [&](const checkpoint::SavedCheckpoint& saved) {
          RequireModel(variables, saved, /*all=*/false);
          restore.Run(*session_, std::filesystem::absolute(saved.path()).string());
          return evaluation_->Run(*session_, dataset, spec.max_steps, peers());
        });
  }

  Columns Predict(const PredictSpec& spec) {
    const Dataset dataset = PreparePrediction("Predict", spec);
    return prediction_->Run(*session_, dataset);
  }

  void Export(const std::string& directory, const PredictSpec& spec) {
    PreparePrediction("Export", spec);
    if (!leads()) return;
    WriteExport(checkpoint::FileSystem::System(), directory, prediction_->inputs(),
                prediction_->outputs(), *session_, step_);
  }

  bool leads() const { return config_.leads(); }
  const RunConfig& config() const { return config_; }

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

  // Between the steps of a training. A worker that is not in lockstep evaluates alone: the others
  // go on.
  Metrics EvaluateMeanwhile(const EvalSpec& spec) {
    if (config_.strategy_object->InLockstep()) return Evaluate(spec);
    AlonePeers alone;
    return RunEvaluation(EvaluationData(spec), spec.max_steps, alone);
  }

  Metrics RunEvaluation(const Dataset& dataset, int64_t max_steps, Peers& with) {
    const Metrics metrics = evaluation_->Run(*session_, dataset, max_steps, with);
    checkpoints_->NoteMetrics(step_, metrics);
    hooks_.AfterEvaluation({step_, metrics});
    return metrics;
  }

  // Samples of a batch: where workers are in lockstep, over all of them.
  int64_t GlobalBatch() const {
    const Strategy& strategy = *config_.strategy_object;
    const int64_t workers = strategy.InLockstep() ? config_.workers() : 1;
    const int64_t towers = workers * int64_t(strategy.Devices().size());
    const auto parts = CheckedMul(config_.batch_size, training_.spec.accumulate);
    const auto batch = parts ? CheckedMul(*parts, towers) : std::nullopt;
    if (!batch) {
      ThrowInvalidArgument(
          fmt::format("Estimator: batch_size is {}, which {} workers together would make more than "
                      "2^63 samples",
                      config_.batch_size, towers));
    }
    return *batch;
  }

  // This worker's slices, or whole batches that it claims by number, which cannot be read ahead.
  Dataset TrainingData(const Dataset& source) const {
    const Dataset batches = source.Batch(GlobalBatch());
    if (!config_.strategy_object->InLockstep()) return batches.Prefetch(0);
    return batches.Shard(config_.rank(), config_.workers()).Prefetch(kPrefetch);
  }

  int64_t MaxSteps(const TrainSpec& spec, const Dataset& dataset) const {
    if (spec.max_steps > 0) return spec.max_steps;
    if (config_.epochs == 0) return config_.max_steps;
    const auto samples = CheckedMul(dataset.samples(), config_.epochs);
    if (!samples) {
      ThrowInvalidArgument(fmt::format("--epochs {} of {} samples are more than 2^63 samples",
                                       config_.epochs, dataset.samples()));
    }
    return std::max<int64_t>(1, (*samples - 1) / dataset.batch_size() + 1);
  }

  // The same for people, and for an evaluator, which knows neither workers nor samples.
  std::string Until(const TrainSpec& spec) const {
    if (spec.max_steps == 0 && config_.epochs > 0) return fmt::format("{} epochs", config_.epochs);
    return fmt::format("{} steps", spec.max_steps > 0 ? spec.max_steps : config_.max_steps);
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

  // Makes the model in Mode::kPredict and its state ready. The dataset comes in batches.
  Dataset PreparePrediction(const char* call, const PredictSpec& spec) {
    if (!spec.input) {
      ThrowInvalidArgument(fmt::format("Estimator::{}: PredictSpec::input is empty", call));
    }
    const Dataset dataset = spec.input().Batch(spec.batch_size);
    if (!prediction_) {
      const VariablePlacementScope placement(Placement());
      prediction_.emplace(graph_, model_, dataset,
                          training_.nodes.update != nullptr || evaluation_);
    }
    Agree(call, false, {});
    if (!session_) {
      checkpoints_.emplace(config_, Checkpoints::Use::kEvaluate);
      InitializeState();
    }
    return dataset;
  }

  // What places the variables that are made meanwhile; empty: nothing does.
  VariablePlacementScope::Place Placement() {
    if (placer_ == nullptr) return nullptr;
    return [this](const VariableRequest& request) { return placer_->Place(request); };
  }

  // The mode that is built first makes the variables, the second one finds them.
  void BuildToTrain(const Dataset& dataset, const SumOrder& order) {
    const VariablePlacementScope placement(Placement());
    std::optional<nn::ReuseScope> reuse;
    if (evaluation_ || prediction_) reuse.emplace(graph_, "", "training");
    training_ = BuildTraining(graph_, model_, config_, dataset, order);
  }
  void BuildToEvaluate(const Dataset& dataset) {
    if (evaluation_) return;
    const VariablePlacementScope placement(Placement());
    evaluation_.emplace(graph_, model_, dataset,
                        /*reuse=*/training_.nodes.update != nullptr || prediction_);
  }

  void Agree(std::string_view call, bool built, const std::vector<Fact>& data) {
    if (config_.workers() == 1) return;
    std::vector<Fact> facts;
    if (built) facts = ModelFacts(graph_, config_, training_.nodes.joint.how);
    facts.insert(facts.end(), data.begin(), data.end());
    RequireAgreement(peers(), call, facts);
  }

  void MakeSession() {
    if (session_) return;
    SessionOptions options;
    options.job = config_.job;
    options.task = config_.task;
    if (config_.strategy == "local") {
      options.devices = int(std::min<int64_t>(config_.devices, INT32_MAX));
      options.placement = config_.placement;
      options.target = config_.target;
      if (!config_.device_memory.empty()) {
        options.device_memory = ValueOrThrow(topology::ParseBytes(config_.device_memory));
      }
    }
    config_.strategy_object->Configure(options);
    session_.emplace(graph_, options);
  }

  // Gives the variables that have none their first values, or all of them those of the newest
  // checkpoint, the same on all workers. True if there was one.
  bool InitializeState() {
    if (!checkpoints_) checkpoints_.emplace(config_, Checkpoints::Use::kEvaluate);
    MakeSession();
    const bool gives = config_.strategy_object->GivesValues();
    if (gives) session_->Initialize();
    const auto point = checkpoints_->Restore(graph_, *session_, gives);
    if (point) {
      step_ = point->step;
      position_ = point->position;
    } else {
      checkpoints_->WarmStart(graph_, *session_);
    }
    config_.strategy_object->SynchronizeState(graph_, *session_);
    return point.has_value();
  }

  void TellPlacement() const {
    if (config_.verbose) {
      const std::string placed = placer_->Describe();
      if (!placed.empty()) FormatTo(stderr, "{}\n", placed);
    } else if (const std::string summary = placer_->Summary(); !summary.empty()) {
      FormatTo(stderr, "{}: {}\n", config_.program, summary);
    }
  }

  void TellResume(int64_t max_steps) const {
    if (step_ < max_steps) {
      FormatTo(stderr, "{}: goes on from step {} of {}, the newest checkpoint in {}\n",
               config_.program, step_, max_steps, config_.model_dir);
    } else {
      FormatTo(stderr,
               "{}: the newest checkpoint in {} is of step {}, and --max-steps is {}: there is "
               "nothing to train\n",
               config_.program, config_.model_dir, step_, max_steps);
    }
  }

  TrainResult Loop(const Dataset& dataset, int64_t max_steps) {
    const auto driver = config_.strategy_object->MakeDriver(*session_, training_.nodes,
                                                            {.first = step_, .end = max_steps});
    const int64_t first_step = step_, first_position = position_;
    // Every update takes a batch, whoever makes it.
    const auto position_of = [&](int64_t step) {
      return first_position + (step - first_step) * dataset.batch_size();
    };
    BatchByNumber batches(dataset, first_position);
    TrainingReport report(config_, training_.nodes.joint.how);
    hooks_.OnStart({config_, graph_, training_, *session_, step_, max_steps, dataset.samples()});
    double loss = 0;
    bool stop = false, out_of_data = false, any = false;
    const int64_t begin = NowNanos();
    for (int64_t number; !stop && (number = driver->NextBatch()) >= 0;) {
      Minibatch batch;
      const int64_t asked = NowNanos();
      if (out_of_data = !batches.Read(number, &batch); out_of_data) break;
      report.CountInput(NowNanos() - asked);
      stop = RunStep(*driver, batch, dataset.batch_size(), report);
      loss = update_.result().loss;
      report.CountStep(update_.result());
      any = true;
      position_ = position_of(step_);
      if (step_ < max_steps && !stop) Save(position_of);
    }
    driver->Leave();
    hooks_.OnEnd({step_, double(NowNanos() - begin) * 1e-9,
                  any ? update_.feeds() : std::span<const Feed>(), update_.own_samples(),
                  *session_});
    if (any && config_.Tells() && config_.strategy == "local" && config_.placement != "manual") {
      FormatTo(stderr, "{}: {}\n", config_.program, session_->Explain().Summary());
    }
    TrainResult result = report.Finish(loss, driver->Report());
    const StepsMade made = driver->Made({step_, step_ - first_step});
    step_ = made.step;
    // After a stop, other workers may have made updates that this one has not heard of.
    const int64_t taken =
        std::max({int64_t{0}, made.batches, std::min(made.step, max_steps) - first_step});
    position_ = first_position + taken * dataset.batch_size();
    if (AnyStopped(stop)) {
      const JointStop joint = AgreeOnStop(peers(), hooks_.control().reason());
      result.stopped = joint.signal != 0;
      result.stop_reason = joint.reason;
      TellStop(joint, max_steps);
    }
    const bool saves = checkpoints_->WillSave(step_, /*last=*/true);
    if (const auto ended = checkpoints_->TakeEnded()) hooks_.AfterSave(*ended);
    if (saves) hooks_.BeforeSave(step_);
    result.save_error = MessageOf(checkpoints_->Finish(*session_, step_, position_));
    if (const auto ended = checkpoints_->TakeEnded()) hooks_.AfterSave(*ended);
    if (out_of_data && config_.Tells()) TellEndOfData(dataset, max_steps);
    // Launchers kill the rest of a job when one of it has ended: nobody does before all is saved.
    if (result.stopped) peers().Gather("the end after a stop", "");
    return result;
  }

  // Workers that are not in lockstep learn of a stop at different times, or not at all.
  bool AnyStopped(bool own) {
    if (config_.strategy_object->InLockstep()) return own;
    double stops[] = {own ? 1.0 : 0.0};
    peers().Sum("stop", stops);
    return stops[0] > 0;
  }

  // Begins a save if one is due.
  void Save(const std::function<int64_t(int64_t)>& position_of) {
    if (const auto ended = checkpoints_->TakeEnded()) hooks_.AfterSave(*ended);
    int64_t step = step_;
    if (checkpoints_->WillSave(step_, /*last=*/false)) {
      // Others have made updates since this worker's last one, which are in the snapshot, too.
      if (!config_.strategy_object->InLockstep()) {
        step = session_->Run(GlobalStep(graph_)).scalar<int64_t>();
      }
      hooks_.BeforeSave(step);
    }
    checkpoints_->AfterStep(*session_, step, position_of(step));
  }

  void TellStop(const JointStop& stop, int64_t max_steps) const {
    if (!config_.Tells()) return;
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

  // One update. True if the training should end after it.
  bool RunStep(StepDriver& driver, const Minibatch& batch, int64_t global_batch,
               TrainingReport& report) {
    const bool traced = hooks_.BeforeStep(step_);
    RunTrace trace;
    const int64_t begin = NowNanos();
    update_.Run(driver, *session_, batch, global_batch, step_,
                StopRequested() || !hooks_.control().reason().empty(), traced ? &trace : nullptr);
    report.CountRun(NowNanos() - begin);
    const StepResult& result = update_.result();
    step_ = result.step;
    hooks_.AfterStep({step_, result.loss, result.samples, update_.values(), *session_,
                      update_.feeds(), update_.gradients(), traced ? &trace : nullptr, result.bad});
    return result.stop || hooks_.control().here();
  }

  const ModelFunction model_;
  RunConfig config_;  // stays as it is after the constructor
  std::unique_ptr<VariablePlacer> placer_;
  Graph graph_;
  TrainingGraph training_;
  std::optional<Session> session_;
  std::optional<Evaluation> evaluation_;
  std::optional<Prediction> prediction_;
  int64_t trainings_ = 0;  // calls of Train
  int64_t evaluations_ = 0;
  int64_t step_ = 0;
  int64_t position_ = 0;  // samples taken so far, over all workers
  std::optional<Checkpoints> checkpoints_;
  TrainingStep update_;
  HookList hooks_;
};

Estimator::Estimator(ModelFunction model, const RunConfig& config)
    : impl_(std::make_unique<Impl>(std::move(model), config)) {}
Estimator::~Estimator() = default;

TrainResult Estimator::Train(const TrainSpec& spec) { return impl_->Train(spec); }
Metrics Estimator::Evaluate(const EvalSpec& spec) { return impl_->Evaluate(spec); }
Metrics Estimator::EvaluateCheckpoints(const TrainSpec& train, const EvalSpec& spec) {
  return impl_->EvaluateCheckpoints(train, spec);
}
Columns Estimator::Predict(const PredictSpec& spec) { return impl_->Predict(spec); }
void Estimator::Export(const std::string& directory, const PredictSpec& spec) {
  impl_->Export(directory, spec);
}
bool Estimator::leads() const { return impl_->leads(); }
const RunConfig& Estimator::config() const { return impl_->config(); }
std::map<std::string, Tensor> Estimator::Variables() { return impl_->Variables(); }

}  // namespace tutti
