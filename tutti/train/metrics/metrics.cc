#include "tutti/train/metrics/metrics.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/nn/layer.h"
#include "tutti/train/metrics/auc.h"

namespace tutti::metrics {
namespace {

constexpr double kLeastProbability = 1e-7;

void Require(const char* metric, const char* what, Output value) {
  if (!value) ThrowInvalidArgument(fmt::format("metrics::{}: {} are empty", metric, what));
}

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

Output Flat(Output value, DType dtype = kFloat32) { return Reshape(As(value, dtype), Shape{-1}); }

Output Count(Output values) { return Cast(Size(values), kFloat64); }

double Ratio(std::span<const double> state) { return state[0] / state[1]; }
double RatioOrZero(std::span<const double> state) {
  return state[1] == 0 ? 0 : state[0] / state[1];
}

// float32 sums of 0 and 1 are exact up to 2^24, so a batch may have so many.
Metric Share(Output yes) {
  const Output hits = As(yes, kFloat32);
  return Metric({tutti::Sum(hits), Count(hits)}, Ratio);
}

// 1 where a probability says yes, of labels 1 where they do; both flat float32.
struct Answers {
  Output predicted;
  Output actual;
};
Answers AnswersOf(const char* metric, Output probabilities, Output labels, double threshold) {
  Require(metric, "probabilities", probabilities);
  Require(metric, "labels", labels);
  const Output flat = Flat(probabilities);
  return {Cast(GreaterEqual(flat, float(threshold)), kFloat32),
          Cast(Greater(Flat(labels), 0.5f), kFloat32)};
}

}  // namespace

Metric Mean(Output values) {
  Require("Mean", "values", values);
  NameScope scope(values.graph(), "mean");
  return Metric({tutti::Sum(As(values, kFloat64)), Count(values)}, Ratio);
}

Metric RootMeanSquaredError(Output predicted, Output expected) {
  Require("RootMeanSquaredError", "predictions", predicted);
  Require("RootMeanSquaredError", "labels", expected);
  NameScope scope(predicted.graph(), "rmse");
  const Output errors = SquaredDifference(Flat(predicted, kFloat64), Flat(expected, kFloat64));
  return Metric({tutti::Sum(errors), Count(errors)},
                [](std::span<const double> state) { return std::sqrt(state[0] / state[1]); });
}

Metric MeanAbsoluteError(Output predicted, Output expected) {
  Require("MeanAbsoluteError", "predictions", predicted);
  Require("MeanAbsoluteError", "labels", expected);
  NameScope scope(predicted.graph(), "mean_absolute_error");
  return Mean(Abs(Sub(Flat(predicted, kFloat64), Flat(expected, kFloat64))));
}

Metric Accuracy(Output logits, Output labels) {
  Require("Accuracy", "logits", logits);
  Require("Accuracy", "labels", labels);
  NameScope scope(logits.graph(), "accuracy");
  return Share(Equal(ArgMax(logits, -1, labels.dtype()), labels));
}

Metric TopKAccuracy(Output logits, Output labels, int64_t k) {
  Require("TopKAccuracy", "logits", logits);
  Require("TopKAccuracy", "labels", labels);
  if (k < 1) ThrowInvalidArgument(fmt::format("metrics::TopKAccuracy: k is {}; expected 1 on", k));
  NameScope scope(logits.graph(), "top_k");
  return Share(InTopK(nn::MergeLeading(logits, 1), Reshape(labels, Shape{-1}), k));
}

Metric BinaryAccuracy(Output probabilities, Output labels, double threshold) {
  const Answers answers = AnswersOf("BinaryAccuracy", probabilities, labels, threshold);
  return Share(Equal(answers.predicted, answers.actual));
}

Metric Precision(Output probabilities, Output labels, double threshold) {
  const Answers answers = AnswersOf("Precision", probabilities, labels, threshold);
  return Metric({tutti::Sum(Mul(answers.predicted, answers.actual)), tutti::Sum(answers.predicted)},
                RatioOrZero);
}

Metric Recall(Output probabilities, Output labels, double threshold) {
  const Answers answers = AnswersOf("Recall", probabilities, labels, threshold);
  return Metric({tutti::Sum(Mul(answers.predicted, answers.actual)), tutti::Sum(answers.actual)},
                RatioOrZero);
}

Metric LogLoss(Output probabilities, Output labels) {
  Require("LogLoss", "probabilities", probabilities);
  Require("LogLoss", "labels", labels);
  NameScope scope(probabilities.graph(), "log_loss");
  const Output p = Clip(Flat(probabilities, kFloat64), kLeastProbability, 1 - kLeastProbability);
  const Output y = Flat(labels, kFloat64);
  const Output likelihood = Add(Mul(y, Log(p)), Mul(Sub(1.0, y), Log(Sub(1.0, p))));
  return Mean(Neg(likelihood));
}

Metric Auc(Output scores, Output labels) {
  Require("Auc", "scores", scores);
  Require("Auc", "labels", labels);
  NameScope scope(scores.graph(), "auc");
  const Output score = Flat(scores);
  const Output positive = Cast(Greater(Flat(labels), 0.5f), kFloat32);
  return Metric({Pack({score, positive, Sub(1.0f, positive)}, 1)}, FinishAuc, MergeAuc);
}

}  // namespace tutti::metrics
