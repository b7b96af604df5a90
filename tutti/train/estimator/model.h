#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/train/optimizers/optimizer.h"

namespace tutti {

// What a model is built for.
enum class Mode { kTrain, kEvaluate };

// The columns of a batch, as a model sees them.
class Features {
 public:
  Features(std::map<std::string, Output> columns, Output first)
      : columns_(std::move(columns)), first_(first) {}

  // Throws Error, naming the columns there are.
  Output operator[](std::string_view column) const;
  const std::map<std::string, Output>& columns() const { return columns_; }
  // The place of the batch's first sample in the step's global batch, an int64 scalar. Layers need
  // not be told: the Estimator opens an nn::SampleScope with it around the model function.
  Output first_sample() const { return first_; }

 private:
  std::map<std::string, Output> columns_;
  Output first_;
};

// A model in one mode. Every output is a mean over the batch.
struct ModelSpec {
  Output loss;
  std::map<std::string, Output> metrics = {};            // scalars, told at evaluation
  std::shared_ptr<const Optimizer> optimizer = nullptr;  // kTrain
  double clip_norm = 0;  // largest global norm of the gradients; 0: any
};

// `value`; throws Error, calling it `what`, unless it is a float32 or float64 scalar: what a loss
// and the metrics are.
Output RequireFloatScalar(Output value, std::string_view what);

// Classification into one of `classes`: mean softmax cross-entropy, and accuracy.
class MultiClassHead {
 public:
  explicit MultiClassHead(int classes) : classes_(classes) {}

  // logits [..., classes], labels integers [...]. Throws Error when the last dimension of logits is
  // not `classes`.
  template <typename O>
  ModelSpec Spec(Output logits, Output labels, O optimizer, Mode mode) const {
    return Build(logits, labels, std::make_shared<O>(std::move(optimizer)), mode);
  }

 private:
  ModelSpec Build(Output logits, Output labels, std::shared_ptr<const Optimizer> optimizer,
                  Mode mode) const;

  int classes_;
};

}  // namespace tutti
