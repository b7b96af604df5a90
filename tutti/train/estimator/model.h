#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/train/metrics/metric.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/optimizers/weight_decay.h"

namespace tutti {

// What a model is built for.
enum class Mode { kTrain, kEvaluate, kPredict };

// The columns of a batch, as a model sees them.
class Features {
 public:
  Features(std::map<std::string, Output> columns, Output first, Mode mode = Mode::kTrain)
      : columns_(std::move(columns)), first_(first), mode_(mode) {}

  // Throws Error, naming the columns there are. In kPredict a column that is missing is empty, so
  // that a model may name its labels in every mode; heads do not look at them then.
  Output operator[](std::string_view column) const;
  const std::map<std::string, Output>& columns() const { return columns_; }
  // The place of the batch's first sample in the step's global batch, an int64 scalar. Layers need
  // not be told: the Estimator opens an nn::SampleScope with it around the model function.
  Output first_sample() const { return first_; }

 private:
  std::map<std::string, Output> columns_;
  Output first_;
  Mode mode_;
};

// A model in one mode. Loss and metrics are means over the batch, or metrics with a state of their
// own (metrics/metrics.h).
struct ModelSpec {
  Output loss = {};                                      // not needed in kPredict
  std::map<std::string, Metric> metrics = {};            // told at evaluation
  std::shared_ptr<const Optimizer> optimizer = nullptr;  // kTrain
  double clip_norm = 0;  // largest global norm of the gradients; 0: any
  // kPredict: what the model says of each sample, by name; the first dimension counts the samples.
  std::map<std::string, Output> predictions = {};

  // kTrain: which of the trainable variables are trained, by full name. Not given: all.
  std::function<bool(std::string_view variable)> trains = {};
  WeightDecay weight_decay = {};
  // kTrain: in how many parts the samples of an update pass, one after the other (strategies with
  // parameter servers take 1 alone). A worker takes RunConfig::batch_size samples for each part,
  // and has memory for one part. Moving averages (BatchNorm) move by the last part of an update.
  int64_t accumulate = 1;
};

// `value`; throws Error, calling it `what`, unless it is a float32 or float64 scalar: what a loss
// and metrics that are batch means are.
Output RequireFloatScalar(Output value, std::string_view what);

}  // namespace tutti
