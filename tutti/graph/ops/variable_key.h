#pragma once

#include <string>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"

namespace tutti {

// Where a variable is kept: its container and name on its device.
struct VariableKey {
  std::string container;
  std::string name;
  friend bool operator==(const VariableKey&, const VariableKey&) = default;
};

// The variable that `reference` stands for: a Variable node, or inside If and While the Arg that
// captured one. INVALID_ARGUMENT when it is neither. Lies in state.cc.
absl::StatusOr<VariableKey> VariableKeyOf(Output reference);

}  // namespace tutti
