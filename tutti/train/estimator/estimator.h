#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/train/estimator/model.h"
#include "tutti/train/hooks/hook.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Builds the model: once to train, once more on the same variables to evaluate.
using ModelFunction = std::function<ModelSpec(const Features& batch, Mode mode)>;
// Returns the samples, shuffled and repeated as they need it. The Estimator itself adds batches,
// the workers' slices and prefetching.
using InputFunction = std::function<Dataset()>;

struct EvalSpec {
  InputFunction input;
  int64_t batch_size = 500;  // over all workers
  int64_t max_steps = 0;     // batches to evaluate; 0: to the end of the data, which must have one
};

struct PredictSpec {
  InputFunction input;  // columns that the predictions do not depend on may be missing
  int64_t batch_size = 500;
};

struct TrainSpec {
  InputFunction input;
  int64_t max_steps = 0;  // 0: RunConfig's
  // What Evaluate will be called with later, if that is known: its model is built and checked
  // before the first step, so that a mistake in it does not cost a training.
  std::optional<EvalSpec> evaluation = {};
  // Called around steps, saves and evaluations, beside the built-in ones.
  std::vector<std::shared_ptr<Hook>> hooks = {};
};

struct TrainResult {
  int64_t steps = 0;
  double loss = 0;  // of the last step
  double seconds = 0;
  double samples_per_second = 0;  // over all workers
  bool stopped = false;           // by a signal to any worker (train/stop.h); the same on all
  std::string stop_reason = {};   // of a hook that ended it; the same on all
  // Why the last checkpoint could not be written, on the worker that leads; empty: it was, or there
  // is no RunConfig::model_dir.
  std::string save_error = {};
};

// Trains and evaluates a model, alone or with other workers, as its RunConfig says; the same
// program does both. Every worker makes the same calls. Throws Error. Not thread-safe.
class Estimator {
 public:
  Estimator(ModelFunction model, const RunConfig& config);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;

  // Trains until the step count, the end of the data, or a stop signal to any worker. Prints the
  // model, cluster and strategy, then progress, and at the end where the time went. A second call
  // continues the training. With a RunConfig::model_dir it resumes from the newest checkpoint
  // there, writes checkpoints while it trains, and one at the end.
  TrainResult Train(const TrainSpec& spec);

  // The mean of loss and metrics over the dataset; the workers share the work. If Train was not
  // called before, evaluates the newest checkpoint in RunConfig::model_dir, or else the initial
  // values. A stop of any worker ends it with an Error (kCancelled).
  Metrics Evaluate(const EvalSpec& spec);

  // The work of a cluster's evaluator task (RunConfig::evaluates): evaluates each checkpoint that a
  // training with `train` writes to RunConfig::model_dir, and the last one in any case, until that
  // training is over. Writes the results to MODEL_DIR/eval. Returns the metrics of the last
  // checkpoint; none if an earlier evaluator has evaluated it. Throws Error: kUnavailable if no
  // training runs.
  Metrics EvaluateCheckpoints(const TrainSpec& train, const EvalSpec& spec);

  // The model's predictions for each sample, by name, in the order of the dataset:
  // ModelSpec::predictions in Mode::kPredict. Every worker gets all of them.
  Columns Predict(const PredictSpec& spec);

  // Writes the model in Mode::kPredict, with the current values of its variables, to a directory
  // that ExportedModel loads and `tutti predict` runs without the code that built the model. `spec`
  // gives the columns; its data are not used. All workers call it; the worker that leads writes. An
  // existing exported model in the directory is replaced.
  void Export(const std::string& directory, const PredictSpec& spec);

  const RunConfig& config() const;
  bool leads() const;  // is this the worker that prints and writes files?

  // The values of all variables by name, for tests and for saving.
  std::map<std::string, Tensor> Variables();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Does the work of this task's role. A trainer trains, evaluates, prints the metrics ("test
// accuracy 91.42%  loss 0.2401"), and exports the model if RunConfig::export_dir is set. If a
// signal stopped the training, it neither evaluates nor exports and returns no metrics. If the
// cluster has an evaluator task, that task evaluates checkpoints and prints, and the trainers
// return no metrics.
Metrics TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval);

}  // namespace tutti
