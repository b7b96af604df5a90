#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/device/kernel.h"

// How kernels get at variables: which one a "&variable" input means, and whether what it holds is
// what the graph says.
namespace tutti {

// Where a variable is kept: its container and name on its device.
struct VariableKey {
  std::string container;
  std::string name;
};

// The variable that `reference` stands for: a Variable node, or inside If and While the Arg that
// captured one. INVALID_ARGUMENT when it is neither.
absl::StatusOr<VariableKey> VariableKeyOf(Output reference);

// Its state on `device`, made without a value when there is none yet.
absl::StatusOr<std::shared_ptr<VariableState>> VariableOf(Output reference, Device& device);

// FAILED_PRECONDITION, naming both types, unless `value` is what the graph declares. Unknown
// dimensions agree with any.
absl::Status CheckDeclared(const VariableState& state, const Tensor& value,
                           const ValueType& declared);

// Locks several variables at once, always in one order, so that two updates that share some never
// wait for each other.
class VariableLocks {
 public:
  // `order` are the states sorted by address. REQUIRES: each stands there once.
  explicit VariableLocks(std::span<VariableState* const> order);
  ~VariableLocks();
  VariableLocks(const VariableLocks&) = delete;
  VariableLocks& operator=(const VariableLocks&) = delete;

 private:
  std::span<VariableState* const> order_;
};

// The states sorted for VariableLocks. INVALID_ARGUMENT when one is given twice.
absl::StatusOr<std::vector<VariableState*>> LockOrder(
    std::span<const std::shared_ptr<VariableState>> states);

}  // namespace tutti
