#include "tutti/graph/ops/state.h"

#include <fmt/format.h>

#include <optional>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"
#include "tutti/graph/ops/rows.h"
#include "tutti/graph/ops/variable_key.h"

namespace tutti {
namespace {

absl::Status InferVariable(InferContext& c) {
  if (c.attr<DType>("dtype") == DType::kInvalid) return c.Error("attribute \"dtype\" is invalid");
  c.SetOutput(0, c.attr<DType>("dtype"), c.attr<Shape>("shape"));
  return absl::OkStatus();
}

absl::Status InferAssign(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  const auto merged = c.shape(0).MergedWith(c.shape(1));
  if (!merged) {
    return c.Error("shapes differ: variable is {}, value is {}", c.shape(0).ToString(),
                   c.shape(1).ToString());
  }
  c.SetOutput(0, c.dtype(0), *merged);
  return absl::OkStatus();
}

absl::Status InferAssignArithmetic(InferContext& c) {
  if (c.dtype(0) == kBool) return c.Error("{}; expected a numeric type", c.DescribeInput(0));
  return InferAssign(c);
}

absl::Status InferScatter(InferContext& c) {
  if (c.dtype(2) != c.dtype(0)) {
    return c.Error("dtypes differ: {}, {}; use Cast on one of them", c.DescribeInput(0),
                   c.DescribeInput(2));
  }
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(CheckRowsInput(c, 0, 1, 2));
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::Status InferScatterArithmetic(InferContext& c) {
  if (c.dtype(0) == kBool) return c.Error("{}; expected a numeric type", c.DescribeInput(0));
  return InferScatter(c);
}

}  // namespace

absl::StatusOr<VariableKey> VariableKeyOf(Output reference) {
  const Node& node = *reference.node;
  const bool is_variable = node.op() == "Variable";
  const AttrValue* container = node.FindAttr(is_variable ? "container" : "_container");
  const AttrValue* captured = is_variable ? nullptr : node.FindAttr("_variable");
  const std::string* name = is_variable           ? &node.name()
                            : captured != nullptr ? std::get_if<std::string>(captured)
                                                  : nullptr;
  if (name == nullptr) {
    return InvalidArgument("{} is no variable; give what Variable() returned", node.Describe());
  }
  const std::string* in = container != nullptr ? std::get_if<std::string>(container) : nullptr;
  return VariableKey{in != nullptr ? *in : "", *name};
}

absl::Status CheckRowsInput(const InferContext& c, int variable, int indices, int rows) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(variable, 1));
  const Shape& whole = c.shape(variable);
  const Shape& index = c.shape(indices);
  if (!whole.has_rank() || !index.has_rank()) return absl::OkStatus();
  std::vector<int64_t> dims(index.dims().begin(), index.dims().end());
  dims.insert(dims.end(), whole.dims().begin() + 1, whole.dims().end());
  std::string why;
  const auto expected = Shape::Make(dims, &why);
  if (!expected)
    return c.Error("the shape of {} would be invalid: {}", c.def().InputName(rows), why);
  if (!c.shape(rows).CompatibleWith(*expected)) {
    return c.Error(
        "{}; expected {}: the shape of {} followed by a row of the variable, which is {}",
        c.DescribeInput(rows), expected->ToString(), c.def().InputName(indices), whole.ToString());
  }
  return absl::OkStatus();
}

void RegisterStateOps(OpRegistry& registry) {
  registry.Add({.name = "Variable",
                .attrs = {{"dtype", AttrType::kDType},
                          {"shape", AttrType::kShape},
                          {"container", std::string()},
                          {"initializer", std::string()},
                          {"trainable", true}},
                .infer = InferVariable,
                .gradient = Gradient::kZero,
                .stateful = true,
                .provides_outputs = true});
  registry.Add({.name = "Assign",
                .inputs = {"&variable", "value"},
                .infer = InferAssign,
                .stateful = true,
                .provides_outputs = true});
  for (const char* name : {"AssignAdd", "AssignSub"}) {
    registry.Add({.name = name,
                  .inputs = {"&variable", "value"},
                  .infer = InferAssignArithmetic,
                  .stateful = true,
                  .provides_outputs = true});
  }
  for (const char* name : {"ScatterAdd", "ScatterSub", "ScatterUpdate"}) {
    registry.Add(
        {.name = name,
         .inputs = {"&variable", "indices", "rows"},
         .infer = name == std::string_view("ScatterUpdate") ? InferScatter : InferScatterArithmetic,
         .stateful = true,
         .provides_outputs = true});
  }
  registry.Add({.name = "IsInitialized",
                .inputs = {"&variable"},
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, kBool, Shape{});
                      return absl::OkStatus();
                    },
                .gradient = Gradient::kZero,
                .stateful = true});
}

namespace {
thread_local VariablePlacementScope::DeviceOf device_of_variables;
}

VariablePlacementScope::VariablePlacementScope(DeviceOf device_of) {
  device_of_variables = std::move(device_of);
}
VariablePlacementScope::~VariablePlacementScope() { device_of_variables = nullptr; }

Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                std::source_location where) {
  return Variable(graph, initializer, name, VariableOptions{}, where);
}

Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                const VariableOptions& options, std::source_location where) {
  const std::string base(name.empty() ? graph.UniqueName("variable")
                                      : graph.name_scope() + std::string(name));
  std::optional<DeviceScope> device;
  if (device_of_variables) {
    const std::string chosen = device_of_variables(base, initializer.dtype, initializer.shape);
    if (!chosen.empty()) device.emplace(graph, chosen);
  }
  // The variable names the node that initialises it, so that any client that has the graph can find
  // it.
  OpBuilder builder("Variable", name.empty() ? base.substr(graph.name_scope().size()) : name);
  builder.On(graph)
      .At(where)
      .Attr("dtype", initializer.dtype)
      .Attr("shape", initializer.shape)
      .Attr("initializer", base + "/initialize");
  if (!options.trainable) builder.Attr("trainable", false);
  const Output variable = builder.Build();
  const std::string relative = base.substr(graph.name_scope().size());
  Output value;
  {
    // Random initialisers derive their seed from their names, and so from the variable's.
    NameScope scope(graph, relative + "/initial");
    value = initializer.build(graph);
  }
  OpBuilder("Assign", relative + "/initialize").At(where).In(variable).In(value).Build();
  OpBuilder("IsInitialized", relative + "/is_initialized").At(where).In(variable).Build();
  return variable;
}

Output Assign(Input variable, Input value, std::string_view name) {
  return OpBuilder("Assign", name).In(variable).In(value).Build();
}
Output AssignAdd(Input variable, Input value, std::string_view name) {
  return OpBuilder("AssignAdd", name).In(variable).In(value).Build();
}
Output AssignSub(Input variable, Input value, std::string_view name) {
  return OpBuilder("AssignSub", name).In(variable).In(value).Build();
}
Output ScatterAdd(Input variable, Input indices, Input rows, std::string_view name) {
  return OpBuilder("ScatterAdd", name).In(variable).In(indices).In(rows).Build();
}
Output ScatterSub(Input variable, Input indices, Input rows, std::string_view name) {
  return OpBuilder("ScatterSub", name).In(variable).In(indices).In(rows).Build();
}
Output ScatterUpdate(Input variable, Input indices, Input rows, std::string_view name) {
  return OpBuilder("ScatterUpdate", name).In(variable).In(indices).In(rows).Build();
}
Output IsInitialized(Input variable, std::string_view name) {
  return OpBuilder("IsInitialized", name).In(variable).Build();
}

}  // namespace tutti
