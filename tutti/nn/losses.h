#pragma once

#include <span>
#include <string_view>

#include "tutti/graph/input.h"

// Losses, each a scalar: the mean over the batch. And accuracy, as a metric.
namespace tutti::nn {

// Classification, one class each: logits [..., classes], labels int32 or int64 [...].
Output SparseSoftmaxLoss(Input logits, Input labels, std::string_view name = "loss");
// The same with a distribution over the classes for each sample: labels as logits.
Output SoftmaxLoss(Input logits, Input labels, std::string_view name = "loss");
// Independent yes-no questions: labels in [0, 1], of the logits' shape and dtype.
Output SigmoidLoss(Input logits, Input labels, std::string_view name = "loss");

// Regression. Both of one shape.
Output MeanSquaredError(Input predicted, Input expected, std::string_view name = "loss");
Output MeanAbsoluteError(Input predicted, Input expected, std::string_view name = "loss");
// Squared up to a difference of `delta`, then linear; delta > 0.
Output HuberLoss(Input predicted, Input expected, double delta = 1, std::string_view name = "loss");

// weight * the sum of L2Loss of the values; to be added to a loss.
Output L2Penalty(std::span<const Output> values, double weight, std::string_view name = "penalty");

// The share of samples whose largest logit is the label's; float32 scalar without gradient.
Output Accuracy(Input logits, Input labels, std::string_view name = "accuracy");

}  // namespace tutti::nn
