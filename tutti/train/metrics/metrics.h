#pragma once

#include <cstdint>

#include "tutti/train/metrics/metric.h"

// The usual metrics, each exact over batches of any sizes and over any workers. Labels and
// predictions have the same number of elements unless something else is said. Every function adds
// nodes to the graph of its arguments and throws Error where they do not fit.
namespace tutti::metrics {

// Of all elements.
Metric Mean(Output values);
// The square root of the mean of (predicted - expected)^2.
Metric RootMeanSquaredError(Output predicted, Output expected);
Metric MeanAbsoluteError(Output predicted, Output expected);

// How often the largest logit is that of the label: logits [..., classes], labels integers [...].
Metric Accuracy(Output logits, Output labels);
// How often the label is among the k largest logits; ties with the label's logit count in its
// favour.
Metric TopKAccuracy(Output logits, Output labels, int64_t k);

// Binary classification. Probabilities are in [0, 1]; labels are 0 or 1 of any type. A prediction
// is positive if its probability is at least `threshold`.
Metric BinaryAccuracy(Output probabilities, Output labels, double threshold = 0.5);
// The share of predicted positives that are positive; 0 if nothing was predicted positive.
Metric Precision(Output probabilities, Output labels, double threshold = 0.5);
// The share of positives that were predicted positive; 0 if there are no positives.
Metric Recall(Output probabilities, Output labels, double threshold = 0.5);
// The mean of -log(probability of the label), probabilities held to [1e-7, 1 - 1e-7].
Metric LogLoss(Output probabilities, Output labels);

// The area under the ROC curve: how often a random positive sample scores higher than a random
// negative one; ties count half. Scores may be any numbers that increase with the probability of a
// positive label. Exact up to kAucScores distinct scores; beyond that adjacent scores are merged,
// with an error below 1e-3 (see auc.cc). NaN if all labels are equal or a score is NaN.
Metric Auc(Output scores, Output labels);

}  // namespace tutti::metrics
