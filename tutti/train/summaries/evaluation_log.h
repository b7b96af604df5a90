#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/file.h"
#include "tutti/train/metrics/metric.h"
#include "tutti/train/summaries/event_file.h"
#include "tutti/train/summaries/metrics_log.h"

namespace tutti {

// What an evaluator leaves in MODEL_DIR/eval: an event file for TensorBoard, metrics.jsonl, and
// which checkpoints it has evaluated, in the file "evaluated": a line for each with its name and
// the CRC32C of its manifest. An evaluator that is started again goes on behind them. Not
// thread-safe.
class EvaluationLog {
 public:
  // Makes the folder if there is none. FAILED_PRECONDITION when another evaluator has it.
  static absl::StatusOr<EvaluationLog> Open(const std::string& model_dir);

  // The oldest of these checkpoints (their steps, the newest first) that has not been evaluated.
  // One that was made anew since, by a training that began again before it, has not, nor have those
  // behind it.
  absl::StatusOr<std::optional<int64_t>> Next(const std::vector<int64_t>& steps);
  // Writes the metrics of a checkpoint down, durably.
  absl::Status Add(int64_t step, const Metrics& metrics);

  bool empty() const { return evaluated_.empty(); }
  // REQUIRES: !empty().
  int64_t last_step() const { return evaluated_.rbegin()->first; }

 private:
  EvaluationLog(std::string model_dir, checkpoint::File lock)
      : model_dir_(std::move(model_dir)), folder_(model_dir_ + "/eval"), lock_(std::move(lock)) {}
  absl::Status ReadEvaluated();
  absl::StatusOr<uint32_t> ManifestCrc(int64_t step) const;
  // Forgets `step` and those behind it.
  void ForgetFrom(int64_t step);
  absl::Status OpenFiles();

  std::string model_dir_;
  std::string folder_;
  checkpoint::File lock_;
  std::map<int64_t, uint32_t> evaluated_;  // CRC32C of the manifest, by step
  bool compared_ = false;                  // with the checkpoints there are
  std::unique_ptr<EventFile> events_;      // null: not open
  std::unique_ptr<MetricsLog> metrics_;
};

}  // namespace tutti
