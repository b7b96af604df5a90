// What a program does in each role of a job: train and evaluate, or only evaluate.
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/estimator/evaluator.h"
#include "tutti/train/export/export_format.h"
#include "tutti/train/mirror/checkpoint_feed.h"

namespace tutti {

Metrics TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval) {
  const RunConfig& config = estimator.config();
  const auto tell = [&config](const Metrics& metrics) {
    if (config.Tells() && !metrics.empty()) FormatTo(stdout, "test {}\n", TextOf(metrics));
  };
  if (config.evaluates()) {
    const Metrics metrics = estimator.EvaluateCheckpoints(train, eval);
    tell(metrics);
    return metrics;
  }
  if (config.leads() && !config.export_dir.empty()) {
    CheckExportTarget(checkpoint::FileSystem::System(), config.export_dir);
  }
  CheckpointFeed feed(config);
  TrainSpec checked = train;
  checked.evaluation = eval;
  const TrainResult trained = estimator.Train(checked);
  if (trained.stopped) return {};
  Metrics metrics;
  if (!config.has_evaluator) metrics = estimator.Evaluate(eval);
  tell(metrics);
  if (const std::string& to = config.export_dir; !to.empty()) {
    estimator.Export(to, {.input = eval.input});
  }
  feed.Finish();
  if (!trained.save_error.empty()) {
    throw Error(Code::kDataLoss,
                "the training is done, but its last checkpoint could not be "
                "written: " +
                    trained.save_error);
  }
  return metrics;
}

}  // namespace tutti
