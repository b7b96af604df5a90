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
// How often the label is among the k largest logits; those that tie with it do not push it out.
Metric TopKAccuracy(Output logits, Output labels, int64_t k);

// Yes-no questions. Probabilities are in [0, 1]; labels are 0 or 1 of any type. A prediction is yes
// from `threshold` on.
Metric BinaryAccuracy(Output probabilities, Output labels, double threshold = 0.5);
// Of what was predicted as yes, how much is; 0 where nothing was.
Metric Precision(Output probabilities, Output labels, double threshold = 0.5);
// Of what is yes, how much was predicted; 0 where nothing is.
Metric Recall(Output probabilities, Output labels, double threshold = 0.5);
// The mean of -log(probability of the label), probabilities held to [1e-7, 1 - 1e-7].
Metric LogLoss(Output probabilities, Output labels);

// The area under the ROC curve: how often a random positive sample scores higher than a random
// negative one, ties counting half. Scores are any numbers that grow with the belief in yes. Exact
// up to kAucScores distinct scores; beyond them neighbours are joined, which costs less than 1e-3
// (auc.h tells why). NaN where all labels are alike, or a score is NaN.
Metric Auc(Output scores, Output labels);

}  // namespace tutti::metrics
