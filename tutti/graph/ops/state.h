#pragma once

#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

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
// gives it its first value. Throws Error, and leaves the graph as it was, when the initialiser does
// or gives another type or shape. A variable cannot be made inside If and While, only used there.
Output Variable(Graph& graph, const Initializer& initializer, std::string_view name = "",
                std::source_location where = std::source_location::current());

// The same; `trainable` says whether nn::TrainableVariables lists it (moving averages, counters and
// optimizer slots are not). `slot_of` is the variable whose optimizer slot it is, if it is one.
struct VariableOptions {
  bool trainable = true;
  Output slot_of = {};
};
Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                const VariableOptions& options,
                std::source_location where = std::source_location::current());

// A variable that is about to be made.
struct VariableRequest {
  std::string name;  // in full
  DType dtype = kFloat32;
  Shape shape;
  VariableOptions options = {};
};

// Where a variable lives: on one device, or split into parts of consecutive rows (of dimension 0).
// Each part is a variable of its own, NAME/part_0 and so on. Variable() then returns the parts
// joined, which models read as usual; gradients and updates are those of the parts. Only trainable
// variables can be split, because an assignment needs the whole variable.
struct VariablePlacement {
  struct Part {
    int64_t rows = 0;
    std::string device = {};
  };
  std::string device = {};       // empty: as device scopes say
  std::vector<Part> parts = {};  // empty: in one piece; else their rows make up dimension 0
};

// While it lives, `place` decides where the variables live that this thread makes. Strategies use
// it to spread variables. It is also called for optimizer slots, and must return the device of the
// slot's variable or none, because an update changes both. At most one scope per thread at a time.
class VariablePlacementScope {
 public:
  using Place = std::function<VariablePlacement(const VariableRequest&)>;
  explicit VariablePlacementScope(Place place);
  ~VariablePlacementScope();
  VariablePlacementScope(const VariablePlacementScope&) = delete;
  VariablePlacementScope& operator=(const VariablePlacementScope&) = delete;
};

// Is the node what Variable() returned: a variable, or one that was split?
bool IsVariable(const Node& node);

// `variable` must be what Variable() returned. Each returns the value after the update.
Output Assign(Input variable, Input value, std::string_view name = "");
Output AssignAdd(Input variable, Input value, std::string_view name = "");
Output AssignSub(Input variable, Input value, std::string_view name = "");

// Change rows of a variable: row indices[i] (of its first dimension) by rows[i]. `indices` is an
// int32 or int64 tensor of any shape and `rows` has that shape followed by the variable's without
// its first dimension. Repeated indices are applied in order: ScatterAdd and ScatterSub apply all
// of them, and with ScatterUpdate the last one wins. An index out of range is an error that changes
// nothing. Each returns the whole variable after the update.
Output ScatterAdd(Input variable, Input indices, Input rows, std::string_view name = "");
Output ScatterSub(Input variable, Input indices, Input rows, std::string_view name = "");
Output ScatterUpdate(Input variable, Input indices, Input rows, std::string_view name = "");

// A bool scalar: has the variable been given a value?
Output IsInitialized(Input variable, std::string_view name = "");

}  // namespace tutti
