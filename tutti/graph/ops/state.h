#pragma once

#include <functional>
#include <source_location>
#include <string>
#include <string_view>

#include "tutti/graph/input.h"

// Values that outlive a step.
namespace tutti {

// How a variable gets its first value: its type, and a function that builds the value. The
// functions of nn/initializers.h (Zeros, RandomUniform, ...) make them.
struct Initializer {
  DType dtype = kFloat32;
  Shape shape;
  std::function<Output(Graph&)> build;
};

// A value that lives on a device, under its name, from run to run. As an input it stands for the
// value that it has when the step starts; updates return the value they leave. Session::Initialize
// gives it its first value.
Output Variable(Graph& graph, const Initializer& initializer, std::string_view name = "",
                std::source_location where = std::source_location::current());

// The same; `trainable` says whether nn::TrainableVariables lists it (moving averages, counters and
// optimizer slots are not).
struct VariableOptions {
  bool trainable = true;
};
Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                const VariableOptions& options,
                std::source_location where = std::source_location::current());

// While it lives, variables that this thread makes live on the device that `device_of` names, where
// that is not empty: how a strategy decides where they go. One at a time per thread.
class VariablePlacementScope {
 public:
  using DeviceOf = std::function<std::string(std::string_view name, DType, const Shape&)>;
  explicit VariablePlacementScope(DeviceOf device_of);
  ~VariablePlacementScope();
  VariablePlacementScope(const VariablePlacementScope&) = delete;
  VariablePlacementScope& operator=(const VariablePlacementScope&) = delete;
};

// `variable` must be what Variable() returned. Each returns the value after the update.
Output Assign(Input variable, Input value, std::string_view name = "");
Output AssignAdd(Input variable, Input value, std::string_view name = "");
Output AssignSub(Input variable, Input value, std::string_view name = "");

// Change rows of a variable: row indices[i] (of its first dimension) by rows[i]. `indices` is an
// int32 or int64 tensor of any shape and `rows` has that shape followed by the variable's without
// its first dimension. Repeated indices are worked off in order, so sums count them all and of
// several ScatterUpdates the last one stays. An index out of range is an error that changes
// nothing. Each returns the whole variable after the update.
Output ScatterAdd(Input variable, Input indices, Input rows, std::string_view name = "");
Output ScatterSub(Input variable, Input indices, Input rows, std::string_view name = "");
Output ScatterUpdate(Input variable, Input indices, Input rows, std::string_view name = "");

// A bool scalar: has the variable been given a value?
Output IsInitialized(Input variable, std::string_view name = "");

}  // namespace tutti
