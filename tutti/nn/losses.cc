#include "tutti/nn/losses.h"

#include <fmt/format.h>

#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/nn/layer.h"

namespace tutti::nn {

Output SparseSoftmaxLoss(Input logits, Input labels, std::string_view name) {
  NameScope scope(GraphOf(logits, "SparseSoftmaxLoss"), name);
  return Mean(SparseSoftmaxCrossEntropy(logits, labels).loss);
}

Output SoftmaxLoss(Input logits, Input labels, std::string_view name) {
  NameScope scope(GraphOf(logits, "SoftmaxLoss"), name);
  return Mean(SoftmaxCrossEntropy(logits, labels).loss);
}

Output SigmoidLoss(Input logits, Input labels, std::string_view name) {
  NameScope scope(GraphOf(logits, "SigmoidLoss"), name);
  return Mean(SigmoidCrossEntropy(logits, labels));
}

Output MeanSquaredError(Input predicted, Input expected, std::string_view name) {
  NameScope scope(GraphOf(predicted, "MeanSquaredError"), name);
  return Mean(SquaredDifference(predicted, expected));
}

Output MeanAbsoluteError(Input predicted, Input expected, std::string_view name) {
  NameScope scope(GraphOf(predicted, "MeanAbsoluteError"), name);
  return Mean(Abs(Sub(predicted, expected)));
}

Output HuberLoss(Input predicted, Input expected, double delta, std::string_view name) {
  if (!(delta > 0)) {
    ThrowInvalidArgument(fmt::format("HuberLoss: delta is {}; expected more than 0", delta));
  }
  NameScope scope(GraphOf(predicted, "HuberLoss"), name);
  // With q = min(|d|, delta): q^2 / 2 + delta * (|d| - q).
  const Output distance = Abs(Sub(predicted, expected));
  const Output quadratic = Minimum(distance, delta);
  return Mean(Add(Mul(Square(quadratic), 0.5), Mul(Sub(distance, quadratic), delta)));
}

Output L2Penalty(std::span<const Output> values, double weight, std::string_view name) {
  if (values.empty()) ThrowInvalidArgument("L2Penalty: no values given");
  NameScope scope(GraphOf(values.front(), "L2Penalty"), name);
  std::vector<Output> sums;
  for (const Output& value : values) sums.push_back(L2Loss(value));
  return Mul(AddN(sums), weight);
}

Output Accuracy(Input logits, Input labels, std::string_view name) {
  NameScope scope(GraphOf(logits, "Accuracy"), name);
  const Output predicted = ArgMax(logits, -1, labels.output().dtype());
  return Mean(Cast(Equal(predicted, labels), kFloat32));
}

}  // namespace tutti::nn
