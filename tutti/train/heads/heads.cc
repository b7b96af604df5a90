#include "tutti/train/heads/heads.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/nn/losses.h"
#include "tutti/train/metrics/metrics.h"

namespace tutti {
namespace {

void RequireValues(const char* head, Output values) {
  if (!values) ThrowInvalidArgument(fmt::format("{}: the logits are empty", head));
}

void RequireLabels(const char* head, Output labels) {
  if (!labels) ThrowInvalidArgument(fmt::format("{}: the labels are empty", head));
}

void RequireLastDim(const char* head, Output logits, int64_t expected, const char* what) {
  const Shape& shape = logits.shape();
  if (!shape.has_rank() || (shape.rank() >= 1 && shape[shape.rank() - 1] == expected)) return;
  ThrowInvalidArgument(fmt::format("{}: logits {} are {}; expected {} {} in the last dimension",
                                   head, logits.node->Describe(), shape.ToString(), expected,
                                   what));
}

// Labels in the type and shape of the values they belong to. Without this [batch] and [batch, 1]
// would be broadcast to [batch, batch].
Output LabelsLike(const char* head, Output values, Output labels) {
  RequireLabels(head, labels);
  const Shape& want = values.shape();
  const Shape& have = labels.shape();
  if (want.IsFullyKnown() && have.IsFullyKnown() && want.elements() != have.elements()) {
    ThrowInvalidArgument(
        fmt::format("{}: the labels {} are {}; expected as many as {}, the shape "
                    "of the logits",
                    head, labels.node->Describe(), have.ToString(), want.ToString()));
  }
  const Output typed = labels.dtype() == values.dtype() ? labels : Cast(labels, values.dtype());
  if (want.has_rank() && have.has_rank() && want.rank() == have.rank()) return typed;
  return Reshape(typed, Input(ShapeOf(values)));
}

// One value a sample: [batch], or [batch, 1].
void RequireOneEach(const char* head, Output logits) {
  const Shape& shape = logits.shape();
  if (!shape.has_rank() || shape.rank() == 1 || (shape.rank() == 2 && shape[1] == 1)) return;
  ThrowInvalidArgument(fmt::format("{}: logits {} are {}; expected [batch] or [batch, 1]", head,
                                   logits.node->Describe(), shape.ToString()));
}

// What BinaryHead and MultiLabelHead share.
ModelSpec YesNoSpec(const char* head, Output logits, Output labels, double threshold, Mode mode,
                    const char* class_name) {
  ModelSpec spec;
  const Output probabilities = Sigmoid(logits);
  if (mode == Mode::kPredict) {
    spec.predictions = {{"logits", logits},
                        {"probabilities", probabilities},
                        {class_name, Cast(GreaterEqual(probabilities, float(threshold)), kInt32)}};
    return spec;
  }
  const Output expected = LabelsLike(head, logits, labels);
  spec.loss = nn::SigmoidLoss(logits, expected);
  spec.metrics["accuracy"] = metrics::BinaryAccuracy(probabilities, expected, threshold);
  spec.metrics["precision"] = metrics::Precision(probabilities, expected, threshold);
  spec.metrics["recall"] = metrics::Recall(probabilities, expected, threshold);
  // By logits: probabilities near 0 and 1 round to ties.
  spec.metrics["auc"] = metrics::Auc(logits, expected);
  return spec;
}

}  // namespace

ModelSpec MultiClassHead::Build(Output logits, Output labels, Mode mode) const {
  RequireValues("MultiClassHead", logits);
  RequireLastDim("MultiClassHead", logits, classes_, "classes");
  ModelSpec spec;
  if (mode == Mode::kPredict) {
    spec.predictions = {{"logits", logits},
                        {"probabilities", Softmax(logits)},
                        {"class", ArgMax(logits, -1, kInt32)}};
    return spec;
  }
  RequireLabels("MultiClassHead", labels);
  spec.loss = nn::SparseSoftmaxLoss(logits, labels);
  spec.metrics["accuracy"] = metrics::Accuracy(logits, labels);
  if (options_.top_k > 0) {
    spec.metrics[fmt::format("top_{}_accuracy", options_.top_k)] =
        metrics::TopKAccuracy(logits, labels, options_.top_k);
  }
  return spec;
}

ModelSpec BinaryHead::Build(Output logits, Output labels, Mode mode) const {
  RequireValues("BinaryHead", logits);
  RequireOneEach("BinaryHead", logits);
  return YesNoSpec("BinaryHead", logits, labels, threshold_, mode, "class");
}

ModelSpec MultiLabelHead::Build(Output logits, Output labels, Mode mode) const {
  RequireValues("MultiLabelHead", logits);
  RequireLastDim("MultiLabelHead", logits, questions_, "questions");
  return YesNoSpec("MultiLabelHead", logits, labels, threshold_, mode, "classes");
}

ModelSpec RegressionHead::Build(Output values, Output labels, Mode mode) const {
  RequireValues("RegressionHead", values);
  ModelSpec spec;
  if (mode == Mode::kPredict) {
    spec.predictions = {{"values", values}};
    return spec;
  }
  const Output expected = LabelsLike("RegressionHead", values, labels);
  spec.loss = nn::MeanSquaredError(values, expected);
  spec.metrics["rmse"] = metrics::RootMeanSquaredError(values, expected);
  spec.metrics["mean_absolute_error"] = metrics::MeanAbsoluteError(values, expected);
  return spec;
}

}  // namespace tutti
