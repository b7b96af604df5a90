#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/train/estimator/model.h"

// A head is the top of a network. It turns the network's last values and the labels into what an
// Estimator needs: loss, metrics and predictions.
namespace tutti {

// Immutable; every method throws Error where values do not fit, naming the head.
class Head {
 public:
  virtual ~Head() = default;

  // The model; in kTrain with the optimizer. `labels` may be empty in kPredict.
  template <typename O>
  ModelSpec Spec(Output logits, Output labels, O optimizer, Mode mode) const {
    ModelSpec spec = Build(logits, labels, mode);
    if (mode == Mode::kTrain) spec.optimizer = std::make_shared<O>(std::move(optimizer));
    return spec;
  }
  // The same without an optimizer, to be joined with others (JoinHeads).
  ModelSpec Spec(Output logits, Output labels, Mode mode) const {
    return Build(logits, labels, mode);
  }

 protected:
  virtual ModelSpec Build(Output logits, Output labels, Mode mode) const = 0;
};

struct MultiClassOptions {
  int64_t top_k = 0;  // more than 0: also the metric "top_<k>_accuracy"
};
// One of `classes`: mean softmax cross-entropy. logits [..., classes], labels integers [...].
// Metrics: accuracy. Predictions: logits, probabilities, class.
class MultiClassHead : public Head {
 public:
  explicit MultiClassHead(int classes, const MultiClassOptions& options = {})
      : classes_(classes), options_(options) {}

 protected:
  ModelSpec Build(Output logits, Output labels, Mode mode) const override;

 private:
  int classes_;
  MultiClassOptions options_;
};

// Yes or no: mean sigmoid cross-entropy. logits [batch] or [batch, 1], as many labels, 0 or 1 of
// any type. Metrics: accuracy, precision, recall, auc. Predictions: logits, probabilities, class.
class BinaryHead : public Head {
 public:
  explicit BinaryHead(double threshold = 0.5) : threshold_(threshold) {}

 protected:
  ModelSpec Build(Output logits, Output labels, Mode mode) const override;

 private:
  double threshold_;
};

// Several yes-no questions for each sample: logits and labels [batch, questions]. Metrics over all
// questions together: accuracy, precision, recall, auc. Predictions: logits, probabilities,
// classes.
class MultiLabelHead : public Head {
 public:
  explicit MultiLabelHead(int questions, double threshold = 0.5)
      : questions_(questions), threshold_(threshold) {}

 protected:
  ModelSpec Build(Output logits, Output labels, Mode mode) const override;

 private:
  int questions_;
  double threshold_;
};

// A number, or several: mean squared error. Values and labels have the same number of elements,
// [batch] or [batch, width]; labels may be of any type. Metrics: rmse, mean_absolute_error.
// Predictions: values.
class RegressionHead : public Head {
 protected:
  ModelSpec Build(Output values, Output labels, Mode mode) const override;
};

// One task of several that a network learns at once.
struct HeadTask {
  std::string name;  // stands before its metrics and predictions: "age/rmse"
  ModelSpec spec;    // of a head, without optimizer
  double weight = 1;
};
// The model of all tasks: the loss is the weighted sum of theirs, which are metrics too
// ("age/loss").
ModelSpec JoinTasks(std::vector<HeadTask> tasks, std::shared_ptr<const Optimizer> optimizer,
                    Mode mode);
template <typename O>
ModelSpec JoinHeads(std::vector<HeadTask> tasks, O optimizer, Mode mode) {
  return JoinTasks(std::move(tasks), std::make_shared<O>(std::move(optimizer)), mode);
}

}  // namespace tutti
