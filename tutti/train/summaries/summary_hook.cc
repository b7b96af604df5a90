// What is seen of a training from outside: TensorBoard's event files in --model-dir (evaluations in
// its folder eval, as TensorBoard shows them beside the training), and metrics.jsonl there.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/nn/variables.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/every_steps.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/summaries/event_file.h"
#include "tutti/train/summaries/events.h"
#include "tutti/train/summaries/metrics_log.h"

namespace tutti {
namespace {

constexpr int64_t kMostNodes = 20'000;  // of a graph that TensorBoard draws

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A Markdown block that keeps columns.
std::string Preformatted(const std::string& text) {
  std::string block;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    block += "    " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return block;
}

class SummaryHook final : public Hook {
 public:
  explicit SummaryHook(const RunConfig& config) : config_(config), every_(config.summary_every) {}

  void OnStart(const TrainingStart& start) override {
    if (Failed(OpenFile(config_.model_dir, start.step, train_))) return;
    Failed(log_.Open(config_.model_dir, start.step));
    const int64_t nodes = start.training.model_nodes;
    if (nodes <= kMostNodes) Failed(train_.Write(GraphEvent(WallTime(), start.graph, nodes)));
    SummaryValues values;
    values.texts["configuration"] = Preformatted(
        config_.settings.empty() ? fmt::format("strategy {}\nbatch-size {}\nseed {}\n",
                                               config_.strategy, config_.batch_size, config_.seed)
                                 : config_.settings);
    Failed(train_.Write(SummaryEvent(WallTime(), start.step, values)));
    for (const GradientAndVariable& entry : start.training.gradients) {
      if (!entry.gradient.empty()) trained_.push_back(entry.variable);
    }
    // A TrainingSession does not know its gradients.
    if (trained_.empty()) trained_ = nn::TrainableVariables(start.graph);
    has_loss_ = bool(start.training.spec.loss);  // a TrainingSession need not have one
    every_.Begin(start.step);
    last_step_ = start.step;
    last_nanos_ = NowNanos();
  }

  // Decided before the step, as TrainingStep decides whether gradients are fetched: where steps
  // jump, nobody knows then what the step's number will be.
  bool BeforeStep(int64_t step) override {
    due_ = every_.Reached(step + 1) || due_;
    return false;
  }

  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    samples_ += end.samples;
    if (!std::exchange(due_, false) || !train_.is_open()) return;
    const double seconds = std::max(double(NowNanos() - last_nanos_) * 1e-9, 1e-9);
    // A TrainingSession may have gone back to a checkpoint.
    const auto steps = double(std::max<int64_t>(1, end.step - last_step_));
    SummaryValues values;
    values.scalars = end.values;
    if (has_loss_) values.scalars["loss"] = end.loss;
    values.scalars["steps_per_second"] = steps / seconds;
    values.scalars["step_milliseconds"] = 1e3 * seconds / steps;
    if (samples_ > 0) values.scalars["samples_per_second"] = samples_ / seconds;
    if (config_.histograms) AddHistograms(end, values);
    Write(train_, "train", end.step, values);
    samples_ = 0;
    last_step_ = end.step;
    last_nanos_ = NowNanos();
  }

  void AfterEvaluation(const EvaluationEnd& end, TrainingControl& /*control*/) override {
    if (!evaluation_.is_open() && Failed(OpenEvaluation(end.step))) return;
    SummaryValues values;
    values.scalars = end.metrics;
    Write(evaluation_, "eval", end.step, values);
    last_nanos_ = NowNanos();  // the evaluation is not part of a step
  }

 private:
  absl::Status OpenFile(const std::string& directory, int64_t step, EventFile& file) {
    if (file.is_open()) return absl::OkStatus();
    TUTTI_RETURN_IF_ERROR(file.Open(directory));
    TUTTI_RETURN_IF_ERROR(file.Write(FileVersionEvent(WallTime())));
    return file.Write(SessionStartEvent(WallTime(), step));
  }

  // The model directory itself is the checkpoints': it is not made again where it has gone.
  absl::Status OpenEvaluation(int64_t step) {
    const std::string directory = config_.model_dir + "/eval";
    std::error_code error;
    std::filesystem::create_directory(directory, error);
    if (error) return Unavailable("cannot make {}: {}", directory, error.message());
    return OpenFile(directory, step, evaluation_);
  }

  void AddHistograms(const StepEnd& end, SummaryValues& values) const {
    const std::vector<Tensor> weights = end.session.Run(std::span<const Feed>(), trained_);
    for (size_t i = 0; i < trained_.size(); ++i) {
      values.histograms["weights/" + trained_[i].node->name()] = weights[i];
      if (i >= end.gradients.size()) continue;
      values.histograms["gradients/" + trained_[i].node->name()] = end.gradients[i];
    }
  }

  void Write(EventFile& file, std::string_view kind, int64_t step, const SummaryValues& values) {
    const double time = WallTime();
    Failed(file.Write(SummaryEvent(time, step, values)));
    if (log_.is_open()) Failed(log_.Append(step, kind, time, values.scalars));
  }

  // What was learnt counts for more than these files.
  bool Failed(const absl::Status& status) const {
    if (status.ok()) return false;
    Log(LogLevel::kWarning, "summaries: {}; the training goes on without them", MessageOf(status));
    return true;
  }

  const RunConfig& config_;
  EverySteps every_;
  bool due_ = false;
  bool has_loss_ = true;
  EventFile train_, evaluation_;
  MetricsLog log_;
  std::vector<Output> trained_;
  double samples_ = 0;
  int64_t last_step_ = 0;
  int64_t last_nanos_ = 0;
};

}  // namespace

std::shared_ptr<Hook> MakeSummaryHook(const RunConfig& config) {
  if (!config.leads() || config.model_dir.empty() || config.summary_every < 1) return nullptr;
  return std::make_shared<SummaryHook>(config);
}

}  // namespace tutti
