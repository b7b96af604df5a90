#include "tutti/train/estimator/model.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/nn/losses.h"

namespace tutti {

Output Features::operator[](std::string_view column) const {
  if (const auto found = columns_.find(std::string(column)); found != columns_.end()) {
    return found->second;
  }
  std::string names;
  for (const auto& [name, value] : columns_) {
    names += (names.empty() ? "\"" : ", \"") + name + "\"";
  }
  ThrowInvalidArgument(
      fmt::format("the batch has no column \"{}\"; the dataset gives {}", column, names));
}

Output RequireFloatScalar(Output value, std::string_view what) {
  if (!value) ThrowInvalidArgument(fmt::format("the model function gave an empty {}", what));
  const bool is_float = value.dtype() == kFloat32 || value.dtype() == kFloat64;
  if (!is_float || !value.shape().CompatibleWith(Shape{})) {
    ThrowInvalidArgument(fmt::format(
        "the {} that the model function gave, {}, is {} {}; expected a float32 or float64 scalar",
        what, value.node->Describe(), NameOf(value.dtype()), value.shape().ToString()));
  }
  return value;
}

ModelSpec MultiClassHead::Build(Output logits, Output labels,
                                std::shared_ptr<const Optimizer> optimizer, Mode mode) const {
  const Shape& shape = logits.shape();
  if (shape.has_rank() && (shape.rank() < 1 || shape[shape.rank() - 1] != classes_)) {
    ThrowInvalidArgument(
        fmt::format("MultiClassHead: logits {} are {}; expected {} classes in the last dimension",
                    logits.node->Describe(), shape.ToString(), classes_));
  }
  ModelSpec spec;
  spec.loss = nn::SparseSoftmaxLoss(logits, labels);
  spec.metrics["accuracy"] = nn::Accuracy(logits, labels);
  if (mode == Mode::kTrain) spec.optimizer = std::move(optimizer);
  return spec;
}

}  // namespace tutti
