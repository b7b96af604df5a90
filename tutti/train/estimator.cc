// A training is a graph with placeholders for the columns of a batch, the model built on them, and
// the strategy's nodes between gradients and updates. Every worker runs the same loop on its slice
// of every global batch; what they must agree on (whether to stop, the joint loss) comes out of the
// step itself.
#include "tutti/train/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/client/session.h"
#include "tutti/collective/communicator.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text_format.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/seed.h"
#include "tutti/nn/variables.h"
#include "tutti/train/agreement.h"
#include "tutti/train/bad_values.h"
#include "tutti/train/main.h"
#include "tutti/train/progress.h"
#include "tutti/train/time_table.h"
#include "tutti/train/worker_trace.h"

namespace tutti {
namespace {

constexpr int kPrefetch = 2;
constexpr int64_t kTracedStep = 10;  // by then everything is warm

// Placeholders for a batch, of the types that the data has.
struct BatchInputs {
  std::map<std::string, Output> columns;
  Output samples;
  Output first;

  BatchInputs() = default;
  BatchInputs(Graph& graph, const Columns& example, std::string_view scope_name) {
    NameScope scope(graph, scope_name);
    for (const auto& [name, column] : example) {
      columns[name] =
          Placeholder(graph, column.dtype(), column.shape().WithDim(0, kUnknownDim), name);
    }
    samples = Placeholder(graph, kFloat32, Shape{}, "samples");
    first = Placeholder(graph, kInt64, Shape{}, "first_sample");
  }

  void Feed(const Minibatch& batch, int64_t global_batch, std::vector<tutti::Feed>& feeds) const {
    for (const auto& [name, placeholder] : columns) {
      feeds.emplace_back(placeholder, batch.columns.at(name));
    }
    feeds.emplace_back(samples, Tensor::Scalar(float(batch.count)));
    feeds.emplace_back(first, Tensor::Scalar<int64_t>(batch.position % global_batch));
  }
};

// The types of the batches that a dataset gives.
Columns ExampleOf(const Dataset& dataset) {
  Minibatch batch;
  if (!dataset.Batch(1).Shard(0, 1).Prefetch(0).Read()->Next(&batch)) {
    ThrowInvalidArgument("the dataset is empty; expected at least one sample");
  }
  return batch.columns;
}

std::string DescribeTypes(const Columns& columns) {
  std::string text;
  for (const auto& [name, column] : columns) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", name, NameOf(column.dtype()),
                        column.shape().WithDim(0, kUnknownDim).ToString());
  }
  return text;
}

double Seconds(int64_t nanos) { return double(nanos) * 1e-9; }

}  // namespace

class Estimator::Impl {
 public:
  Impl(ModelFunction model, const RunConfig& config) : model_(std::move(model)), config_(config) {
    if (config_.strategy_object == nullptr) {
      ThrowInvalidArgument(
          "Estimator: the RunConfig has no strategy; take the one that Main gives");
    }
    SetSeed(graph_, config_.seed);
  }

  TrainResult Train(const TrainSpec& spec) {
    const int64_t batch = config_.batch_size * config_.workers();
    const Dataset dataset =
        spec.input().Batch(batch).Shard(config_.rank(), config_.workers()).Prefetch(kPrefetch);
    const int64_t max_steps = spec.max_steps > 0 ? spec.max_steps : config_.max_steps;
    if (train_ == nullptr) Prepare(dataset, max_steps);
    return Loop(dataset, max_steps);
  }

  Metrics Evaluate(const EvalSpec& spec) {
    const Dataset dataset =
        spec.input().Batch(spec.batch_size).Shard(config_.rank(), config_.workers());
    if (!session_) ThrowInvalidArgument("Estimator::Evaluate: call Train first");
    if (!evaluation_) BuildEvaluation(dataset);
    return RunEvaluation(dataset, spec.batch_size);
  }

  bool leads() const { return config_.leads(); }

  std::map<std::string, Tensor> Variables() {
    const std::vector<Output> variables = nn::Variables(graph_);
    const std::vector<Tensor> values = session_->Run(std::span<const Feed>(), variables);
    std::map<std::string, Tensor> named;
    for (size_t i = 0; i < variables.size(); ++i) named[variables[i].node->name()] = values[i];
    return named;
  }

 private:
  const Strategy& strategy() const { return *config_.strategy_object; }

  void Prepare(const Dataset& dataset, int64_t max_steps) {
    BuildTraining(dataset);
    if (config_.communicator != nullptr) {
      RequireAgreement(*config_.communicator, Facts(dataset, max_steps));
    }
    SessionOptions options;
    options.communicator = config_.communicator;
    session_.emplace(graph_, options);
    session_->Initialize();
    if (const Node* synchronize = strategy().SynchronizeState(graph_)) {
      session_->RunTargets({}, {synchronize});
    }
    if (WantsWorkerTraces(config_)) traced_step_ = std::min(kTracedStep, max_steps - 1);
    if (leads()) ShowStart(dataset);
  }

  void BuildTraining(const Dataset& dataset) {
    inputs_ = BatchInputs(graph_, ExampleOf(dataset), "input");
    stop_ = Placeholder(graph_, kFloat32, Shape{}, "stop");
    {
      VariablePlacementScope placement(
          [this](std::string_view name, DType dtype, const Shape& shape) {
            return strategy().DeviceOf(name, dtype, shape);
          });
      spec_ = model_(Features(inputs_.columns, inputs_.first), Mode::kTrain);
    }
    if (spec_.optimizer == nullptr) {
      ThrowInvalidArgument("the model function gave no optimizer for Mode::kTrain");
    }
    const WorkerStep step = {spec_.loss, inputs_.samples, stop_};
    auto list = spec_.optimizer->Gradients(strategy().Differentiated(step));
    list = strategy().Aggregate(list, step, &joint_);
    // A loss that is no number changes nothing, so that what made it can be looked for.
    const Output loss = joint_.loss.dtype() == kFloat32 ? joint_.loss : Cast(joint_.loss, kFloat32);
    const Output finite = Cast(IsFinite(loss), kFloat32);
    for (GradientAndVariable& entry : list) {
      if (!entry.gradient.empty()) entry = Scaled(entry, finite);
    }
    if (spec_.clip_norm > 0) list = ClipByGlobalNorm(list, spec_.clip_norm);
    train_ = spec_.optimizer->Apply(list);
  }

  // What all workers must have alike.
  std::vector<Fact> Facts(const Dataset& dataset, int64_t max_steps) const {
    std::vector<Fact> facts = {{"program", config_.program},
                               {"strategy", config_.strategy},
                               {"batch-size", fmt::format("{}", config_.batch_size)},
                               {"seed", fmt::format("{}", config_.seed)},
                               {"max-steps", fmt::format("{}", max_steps)},
                               {"learning-rate", fmt::format("{}", config_.learning_rate)},
                               {"scale-learning-rate", config_.scale_learning_rate ? "on" : "off"},
                               {"warmup-steps", fmt::format("{}", config_.warmup_steps)},
                               {"algorithm", config_.algorithm},
                               {"wire", config_.wire},
                               {"samples of the dataset", fmt::format("{}", dataset.samples())},
                               {"columns", DescribeTypes(dataset.columns())}};
    for (const Output& variable : nn::Variables(graph_)) {
      facts.emplace_back(
          fmt::format("variable {}", variable.node->name()),
          fmt::format("{} {}", NameOf(variable.dtype()), variable.shape().ToString()));
    }
    facts.emplace_back("digest of the graph", Digest(ToText(graph_)));
    return facts;
  }

  void ShowStart(const Dataset& dataset) const {
    const auto variables = nn::TrainableVariables(graph_);
    std::fprintf(stderr, "%s: %lld parameters in %zu variables, %lld samples\n",
                 config_.program.c_str(), static_cast<long long>(nn::CountParameters(variables)),
                 variables.size(), static_cast<long long>(dataset.samples()));
    std::fprintf(stderr,
                 "%s: strategy %s, %d worker%s, %lld samples a worker and step, seed %lld\n",
                 config_.program.c_str(), config_.strategy.c_str(), config_.workers(),
                 config_.workers() == 1 ? "" : "s", static_cast<long long>(config_.batch_size),
                 static_cast<long long>(config_.seed));
  }

  TrainResult Loop(const Dataset& dataset, int64_t max_steps) {
    const auto reader = dataset.Read(step_);
    std::optional<Progress> progress;
    if (leads()) progress.emplace(ProgressOptions{.label = "step", .total = max_steps});
    const int64_t begin = NowNanos();
    const int64_t first_step = step_;
    int64_t input_nanos = 0;
    double samples = 0;
    TrainResult result;
    const collective::CommunicatorStats before = Stats();
    while (step_ < max_steps) {
      Minibatch batch;
      const int64_t asked = NowNanos();
      if (!reader->Next(&batch)) break;
      input_nanos += NowNanos() - asked;
      const bool stop = RunStep(batch, dataset.batch_size(), &result.loss, &samples);
      if (progress) progress->Update(step_, {{"loss", result.loss}});
      if (leads() && config_.log_every > 0 && step_ % config_.log_every == 0) {
        std::fprintf(stderr, "step %lld loss %.6f\n", static_cast<long long>(step_), result.loss);
      }
      result.stopped = stop;
      if (stop) break;
    }
    if (progress) progress->Finish();
    const int64_t nanos = NowNanos() - begin;
    result.steps = step_ - first_step;
    result.seconds = Seconds(nanos);
    result.samples_per_second = nanos > 0 ? samples / Seconds(nanos) : 0;
    ShowEnd(result, nanos, input_nanos, before);
    return result;
  }

  // One update. True if the training should end after it.
  bool RunStep(const Minibatch& batch, int64_t global_batch, double* loss, double* samples) {
    feeds_.clear();
    inputs_.Feed(batch, global_batch, feeds_);
    feeds_.emplace_back(stop_, Tensor::Scalar(StopRequested() ? 1.0f : 0.0f));
    const bool traced = step_ == traced_step_;
    RunTrace trace;
    const Output fetches[] = {joint_.loss, joint_.samples, joint_.stop};
    const Node* const targets[] = {train_};
    session_->RunInto(feeds_, fetches, targets, fetched_,
                      {.trace = traced, .trace_result = traced ? &trace : nullptr});
    *loss = fetched_[0].dtype() == kFloat64 ? fetched_[0].scalar<double>()
                                            : double(fetched_[0].scalar<float>());
    *samples += double(fetched_[1].scalar<float>());
    ++step_;
    if (traced) WriteWorkerTraces(config_, trace);
    if (!std::isfinite(*loss)) {
      ThrowBadValues(config_, *session_, spec_.loss, feeds_, step_, *loss);
    }
    return fetched_[2].scalar<float>() > 0;
  }

  collective::CommunicatorStats Stats() const {
    return config_.communicator == nullptr ? collective::CommunicatorStats{}
                                           : config_.communicator->stats();
  }

  void ShowEnd(const TrainResult& result, int64_t nanos, int64_t input_nanos,
               const collective::CommunicatorStats& before) {
    WorkerTime own;
    own.total = Seconds(nanos);
    own.input = Seconds(input_nanos);
    const collective::CommunicatorStats after = Stats();
    own.exposed = Seconds(after.exposed_nanos - before.exposed_nanos);
    own.hidden = std::max(0.0, Seconds(after.active_nanos - before.active_nanos) - own.exposed);
    own.bytes = double(after.bytes - before.bytes);
    own.compute = std::max(0.0, own.total - own.input - own.exposed);
    for (size_t r = 0; r < after.waited_nanos.size(); ++r) {
      const double waited = Seconds(after.waited_nanos[r] -
                                    (r < before.waited_nanos.size() ? before.waited_nanos[r] : 0));
      if (waited > own.waited) {
        own.waited = waited;
        own.slowest = int(r);
      }
    }
    std::vector<WorkerTime> times = {own};
    if (config_.communicator != nullptr) {
      times.clear();
      for (const std::string& text : GatherTexts(*config_.communicator, "times", ToText(own))) {
        times.push_back(WorkerTimeFromText(text));
      }
    }
    if (!leads()) return;
    std::fprintf(stderr, "%lld steps in %.1f s, %.0f samples/s\n%s",
                 static_cast<long long>(result.steps), result.seconds, result.samples_per_second,
                 RenderTimeTable(times).c_str());
    if (!config_.report.empty()) WriteReport(result, times);
  }

  void WriteReport(const TrainResult& result, const std::vector<WorkerTime>& times) const {
    const std::string text = fmt::format(
        "{{\"workers\":{},\"steps\":{},\"seconds\":{},\"samples_per_second\":{},"
        "\"loss\":{},\"compute\":{},\"comm_hidden\":{},\"comm_exposed\":{},\"input\":{}}}\n",
        config_.workers(), result.steps, result.seconds, result.samples_per_second, result.loss,
        times[0].compute, times[0].hidden, times[0].exposed, times[0].input);
    // What was learnt counts for more than this file.
    if (const absl::Status status = WriteTextFile(config_.report, text); !status.ok()) {
      Log(LogLevel::kWarning, "--report: {}; the training itself is done", MessageOf(status));
    }
  }

  struct Evaluation {
    BatchInputs inputs;
    std::vector<std::string> names;
    std::vector<Output> values;  // means over the batch
  };

  void BuildEvaluation(const Dataset& dataset) {
    nn::ReuseScope reuse(graph_, "", "evaluate");
    Evaluation evaluation;
    evaluation.inputs = BatchInputs(graph_, ExampleOf(dataset), "input");
    const ModelSpec spec =
        model_(Features(evaluation.inputs.columns, evaluation.inputs.first), Mode::kEvaluate);
    evaluation.names.push_back("loss");
    evaluation.values.push_back(spec.loss);
    for (const auto& [name, value] : spec.metrics) {
      evaluation.names.push_back(name);
      evaluation.values.push_back(value);
    }
    evaluation_ = std::move(evaluation);
  }

  Metrics RunEvaluation(const Dataset& dataset, int64_t global_batch) {
    const Evaluation& evaluation = *evaluation_;
    // Sums over samples, and last their number.
    std::vector<double> sums(evaluation.values.size() + 1);
    const auto reader = dataset.Read();
    Minibatch batch;
    while (reader->Next(&batch)) {
      if (batch.count == 0) continue;
      feeds_.clear();
      evaluation.inputs.Feed(batch, global_batch, feeds_);
      const std::vector<Tensor> means = session_->Run(feeds_, evaluation.values);
      for (size_t i = 0; i < means.size(); ++i) {
        const double mean = means[i].dtype() == kFloat64 ? means[i].scalar<double>()
                                                         : double(means[i].scalar<float>());
        sums[i] += mean * double(batch.count);
      }
      sums.back() += double(batch.count);
    }
    if (config_.communicator != nullptr) {
      ThrowIfError(config_.communicator->world()
                       .AllReduce(sums.data(), int64_t(sums.size()), kFloat64, {.key = "evaluate"})
                       .Wait());
    }
    Metrics metrics;
    for (size_t i = 0; i < evaluation.names.size(); ++i) {
      metrics[evaluation.names[i]] = sums.back() > 0 ? sums[i] / sums.back() : 0;
    }
    return metrics;
  }

  const ModelFunction model_;
  const RunConfig config_;
  Graph graph_;
  BatchInputs inputs_;
  Output stop_;
  ModelSpec spec_;
  JointStep joint_;
  const Node* train_ = nullptr;
  std::optional<Session> session_;
  std::optional<Evaluation> evaluation_;
  int64_t step_ = 0;
  int64_t traced_step_ = -1;  // the same on all workers; -1: none
  std::vector<Feed> feeds_;
  Tensor fetched_[3];
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
  if (estimator.leads()) std::printf("test%s\n", text.substr(1).c_str());
  return metrics;
}

}  // namespace tutti
