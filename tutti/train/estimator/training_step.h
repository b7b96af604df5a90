#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/every_steps.h"
#include "tutti/train/metrics/metric_states.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Runs the steps of a training: feeds a batch, in parts where gradients are accumulated, and keeps
// what the step told. `training` must outlive it.
class TrainingStep {
 public:
  TrainingStep() = default;
  // `step` updates were made before the first one.
  TrainingStep(const TrainingGraph& training, const RunConfig& config, int64_t step);

  // One update from this worker's samples; `step` updates were made before. `stop` asks all workers
  // for an end after it. `trace`, unless null, is filled. Throws Error.
  void Run(StepDriver& driver, Session& session, const Minibatch& batch, int64_t global_batch,
           int64_t step, bool stop, RunTrace* trace);

  // Of the last step.
  const StepResult& result() const { return result_; }
  const Metrics& values() const { return values_; }  // see StepEnd
  std::span<const Feed> feeds() const { return feeds_; }
  int64_t own_samples() const { return own_samples_; }  // of this worker, in what was fed last
  std::span<const Tensor> gradients() const;            // if they were due

 private:
  void FeedPart(const Minibatch& part, int64_t global_batch, bool stop);
  void ReadValues();

  const TrainingGraph* training_ = nullptr;
  bool shows_rate_ = false;
  EverySteps gradients_every_;
  MetricStates metrics_;
  StepResult result_;
  std::vector<Output> fetches_;  // values, metrics
  std::vector<Output> gradients_;
  std::vector<Output> with_gradients_;
  std::vector<Feed> feeds_;
  std::vector<Tensor> fetched_;
  size_t fetched_count_ = 0;
  int64_t own_samples_ = 0;
  Metrics values_;
};

}  // namespace tutti
