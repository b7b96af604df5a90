#include "tutti/kernels/update/variable_access.h"

#include <algorithm>
#include <functional>

namespace tutti {

absl::StatusOr<std::shared_ptr<VariableState>> VariableOf(Output reference, Device& device) {
  TUTTI_ASSIGN_OR_RETURN(const VariableKey key, VariableKeyOf(reference));
  return device.variables().FindOrCreate(key.container, key.name,
                                         {reference.dtype(), reference.shape()});
}

absl::Status CheckDeclared(const VariableState& state, const Tensor& value,
                           const ValueType& declared) {
  if (value.dtype() == declared.dtype && value.shape().CompatibleWith(declared.shape)) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      "variable \"{}\" holds {} {}, but this graph declares it as {} {}; another graph gave it its "
      "value: use the same declaration or another name",
      state.name(), NameOf(value.dtype()), value.shape().ToString(), NameOf(declared.dtype),
      declared.shape.ToString());
}

VariableLocks::VariableLocks(std::span<VariableState* const> order) : order_(order) {
  for (VariableState* state : order_) state->mutex().lock();
}

VariableLocks::~VariableLocks() {
  for (size_t i = order_.size(); i > 0; --i) order_[i - 1]->mutex().unlock();
}

absl::StatusOr<std::vector<VariableState*>> LockOrder(
    std::span<const std::shared_ptr<VariableState>> states) {
  std::vector<VariableState*> order;
  order.reserve(states.size());
  for (const auto& state : states) order.push_back(state.get());
  std::sort(order.begin(), order.end(), std::less<>());
  const auto twice = std::adjacent_find(order.begin(), order.end());
  if (twice != order.end()) {
    return InvalidArgument(
        "variable \"{}\" is given twice; variable and slots must be different variables",
        (*twice)->name());
  }
  return order;
}

}  // namespace tutti
