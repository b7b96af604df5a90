#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/device/kernel.h"
#include "tutti/graph/ops/variable_key.h"

// How kernels get at variables: which one a "&variable" input means, and whether what it holds is
// what the graph says.
namespace tutti {

// The state of the variable that `reference` stands for on `device`, made without a value when
// there is none yet.
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
