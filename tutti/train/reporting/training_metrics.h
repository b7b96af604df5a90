#pragma once

#include <cstdint>

#include "tutti/base/metrics/metrics.h"
#include "tutti/train/reporting/time_table.h"

namespace tutti {

// What a training adds to the metrics of its process. Not thread-safe; the metrics are.
class TrainingMetrics {
 public:
  // `bytes` is what this worker has reduced so far. `metrics` must outlive it.
  TrainingMetrics(MetricsRegistry& metrics, int64_t bytes);

  // A step has ended, over so many samples of all workers, with this loss; it began when the one
  // before it ended. `bytes` is what this worker has reduced so far.
  void CountStep(double samples, double loss, int64_t bytes);
  // With parameter servers: this worker's gradient was applied after `staleness` updates of others
  // (-1: they are not counted), or was dropped.
  void CountGradient(int64_t staleness, bool dropped);
  // Where this worker's time has gone since the training began.
  void SetTimes(const WorkerTime& time);

 private:
  Counter& steps_;
  Counter& samples_;
  Counter& reduced_;
  Histogram& step_seconds_;
  Gauge& loss_;
  Gauge& last_step_;
  Counter& dropped_;
  Histogram& staleness_;
  Counter& compute_seconds_;
  Counter& waiting_seconds_;
  Counter& input_seconds_;
  WorkerTime time_;  // that they have counted
  int64_t bytes_;
  int64_t begin_;  // of the current step
};

}  // namespace tutti
