#include "tutti/train/reporting/training_metrics.h"

#include <chrono>

#include "tutti/base/clock.h"

namespace tutti {
namespace {

// From 0.1 ms to 100 s, three in a power of ten.
std::vector<double> StepBounds() {
  std::vector<double> bounds;
  for (double power = 1e-4; power < 50; power *= 10) {
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(power * step);
  }
  bounds.push_back(100);
  return bounds;
}

double SecondsSinceEpoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TrainingMetrics::TrainingMetrics(MetricsRegistry& metrics, int64_t bytes)
    : steps_(metrics.AddCounter("tutti_steps_total", "Updates that this task took part in.")),
      samples_(
          metrics.AddCounter("tutti_samples_total", "Samples of these updates, over all workers.")),
      reduced_(metrics.AddCounter("tutti_reduced_bytes_total",
                                  "Bytes of this task that were combined with other workers\'.")),
      step_seconds_(metrics.AddHistogram("tutti_step_seconds",
                                         "From the end of one update to the end of the next.",
                                         StepBounds())),
      loss_(metrics.AddGauge("tutti_loss", "Of the last update, over all workers.")),
      last_step_(metrics.AddGauge("tutti_last_step_timestamp_seconds",
                                  "When the last update ended, in seconds since 1970.")),
      dropped_(metrics.AddCounter("tutti_dropped_gradients_total",
                                  "Gradients of this worker that came too late for their update.")),
      staleness_(metrics.AddHistogram("tutti_gradient_staleness",
                                      "Updates of others between a worker's read and its own.",
                                      {0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128})),
      compute_seconds_(metrics.AddCounter("tutti_compute_seconds_total",
                                          "Seconds in which this worker neither waited for input "
                                          "nor for others.")),
      waiting_seconds_(metrics.AddCounter(
          "tutti_waiting_seconds_total",
          "Seconds in which this worker waited for servers or other workers, idle.")),
      input_seconds_(metrics.AddCounter("tutti_input_seconds_total",
                                        "Seconds in which this worker waited for a batch.")),
      bytes_(bytes),
      begin_(NowNanos()) {}

void TrainingMetrics::CountGradient(int64_t staleness, bool dropped) {
  if (dropped) dropped_.Add();
  if (staleness >= 0) staleness_.Observe(double(staleness));
}

void TrainingMetrics::SetTimes(const WorkerTime& time) {
  // What is left for compute may shrink by a measuring error; a counter never does.
  const auto add = [&](Counter& counter, double WorkerTime::*field) {
    if (time.*field <= time_.*field) return;
    counter.Add(time.*field - time_.*field);
    time_.*field = time.*field;
  };
  add(compute_seconds_, &WorkerTime::compute);
  add(waiting_seconds_, &WorkerTime::exposed);
  add(input_seconds_, &WorkerTime::input);
}

void TrainingMetrics::CountStep(double samples, double loss, int64_t bytes) {
  const int64_t now = NowNanos();
  steps_.Add();
  samples_.Add(samples);
  reduced_.Add(double(bytes - bytes_));
  step_seconds_.Observe(double(now - begin_) * 1e-9);
  loss_.Set(loss);
  last_step_.Set(SecondsSinceEpoch());
  bytes_ = bytes;
  begin_ = now;
}

}  // namespace tutti
