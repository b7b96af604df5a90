#include "tutti/train/estimator/model.h"

#include <fmt/format.h>

#include "tutti/base/status.h"

namespace tutti {

Output Features::operator[](std::string_view column) const {
  if (const auto found = columns_.find(std::string(column)); found != columns_.end()) {
    return found->second;
  }
  if (mode_ == Mode::kPredict) return {};
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

}  // namespace tutti
