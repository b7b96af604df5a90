#include "tutti/graph/ops/state.h"

#include <fmt/format.h>

#include <optional>

#include "tutti/base/error.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/arrange.h"
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
                .without_effects = true,
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
                .stateful = true,
                .without_effects = true});
}

namespace {

thread_local VariablePlacementScope::Place place_variable;

std::string DescribeVariable(std::string_view name, const std::source_location& where) {
  const std::string_view file = where.file_name();
  const size_t slash = file.rfind('/');
  return fmt::format("Variable \"{}\" ({}:{})", name,
                     slash == file.npos ? file : file.substr(slash + 1), where.line());
}

// A body runs again and again and nobody initialises what lies in it.
void RequireOutsideOfBodies(const Graph& graph, std::string_view name,
                            const std::source_location& where) {
  if (graph.parent() == nullptr && SubgraphBeingBuilt() == nullptr) return;
  ThrowInvalidArgument(fmt::format(
      "{}: a variable cannot be made inside the branch of an If or the body of a While, "
      "where nothing would initialise it; make it before the If or While and use it "
      "inside",
      DescribeVariable(name, where)));
}

// The nodes of the first value. An Error says which variable it is of.
Output BuildInitialValue(Graph& graph, const Initializer& initializer, std::string_view name,
                         const std::source_location& where) {
  try {
    return initializer.build(graph);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: its initialiser failed: {}",
                                          DescribeVariable(name, where), error.what()));
  }
}

Output MakeVariable(Graph& graph, const Initializer& initializer, const std::string& base,
                    const VariableOptions& options, std::source_location where) {
  const std::string relative = base.substr(graph.name_scope().size());
  // The variable names the node that initialises it, so that any client that has the graph can find
  // it.
  OpBuilder builder("Variable", relative);
  builder.On(graph)
      .At(where)
      .Attr("dtype", initializer.dtype)
      .Attr("shape", initializer.shape)
      .Attr("initializer", base + "/initialize");
  if (!options.trainable) builder.Attr("trainable", false);
  if (options.slot_of) {
    // A reset of the variable's container takes its slots along.
    const absl::StatusOr<VariableKey> owner = VariableKeyOf(options.slot_of);
    if (owner.ok() && owner->container != graph.container_scope()) {
      builder.Attr("container", owner->container);
    }
  }
  const Output variable = builder.Build();
  Output value;
  {
    // Random initialisers derive their seed from their names, and so from the variable's.
    NameScope scope(graph, relative + "/initial");
    value = BuildInitialValue(graph, initializer, base, where);
  }
  OpBuilder("Assign", relative + "/initialize").At(where).In(variable).In(value).Build();
  OpBuilder("IsInitialized", relative + "/is_initialized").At(where).In(variable).Build();
  return variable;
}

std::string PartName(const std::string& whole, size_t part) {
  return fmt::format("{}/part_{}", whole, part);
}

void CheckParts(const VariableRequest& request, const VariablePlacement& placement) {
  int64_t rows = 0;
  bool positive = true;
  for (const VariablePlacement::Part& part : placement.parts) {
    positive = positive && part.rows > 0;
    rows += part.rows;
  }
  const Shape& shape = request.shape;
  const bool known = shape.IsFullyKnown() && shape.rank() > 0;
  if (known && positive && rows == shape[0] && request.options.trainable) return;
  ThrowInvalidArgument(
      fmt::format("variable \"{}\" {} was placed in {} parts of {} rows together; only a trainable "
                  "variable of known shape can be split, into parts of at least one row that make "
                  "up dimension 0",
                  request.name, shape.ToString(), placement.parts.size(), rows));
}

// The parts begin with the same numbers as the whole would.
Output MakeParts(Graph& graph, const Initializer& initializer, const VariableRequest& request,
                 const VariablePlacement& placement, std::source_location where) {
  CheckParts(request, placement);
  const std::string relative = request.name.substr(graph.name_scope().size());
  Output whole;
  {
    NameScope scope(graph, relative + "/initial");
    whole = BuildInitialValue(graph, initializer, request.name, where);
  }
  std::vector<Output> parts;
  int64_t first = 0;
  for (size_t p = 0; p < placement.parts.size(); ++p) {
    const auto& [rows, device] = placement.parts[p];
    std::optional<DeviceScope> on;
    if (!device.empty()) on.emplace(graph, device);
    std::vector<int64_t> begin(size_t(request.shape.rank()), 0);
    std::vector<int64_t> size(begin.size(), -1);
    begin[0] = first;
    size[0] = rows;
    const Initializer part = {initializer.dtype, request.shape.WithDim(0, rows),
                              [&](Graph&) { return Slice(whole, begin, size); }};
    parts.push_back(MakeVariable(graph, part, PartName(request.name, p), request.options, where));
    first += rows;
  }
  return Concat(parts, 0, relative, where);
}

// Makes the variable where the scope's function wants it, whole or in parts.
Output PlaceVariable(Graph& graph, const Initializer& initializer, const std::string& base,
                     const VariableOptions& options, std::source_location where) {
  if (!place_variable) return MakeVariable(graph, initializer, base, options, where);
  const VariableRequest request = {base, initializer.dtype, initializer.shape, options};
  const VariablePlacement placement = place_variable(request);
  if (options.slot_of) {
    const std::string& home = options.slot_of.node->device();
    if ((!placement.device.empty() && placement.device != home) || !placement.parts.empty()) {
      ThrowInvalidArgument(
          fmt::format("the slot \"{}\" was placed on \"{}\"{}; expected the device of its variable "
                      "{}, \"{}\", because an update changes both",
                      base, placement.device, placement.parts.empty() ? "" : " in parts",
                      options.slot_of.node->Describe(), home));
    }
  }
  if (!placement.parts.empty()) return MakeParts(graph, initializer, request, placement, where);
  std::optional<DeviceScope> device;
  if (!placement.device.empty()) device.emplace(graph, placement.device);
  return MakeVariable(graph, initializer, base, options, where);
}

}  // namespace

VariablePlacementScope::VariablePlacementScope(Place place) { place_variable = std::move(place); }
VariablePlacementScope::~VariablePlacementScope() { place_variable = nullptr; }

bool IsVariable(const Node& node) {
  if (node.op() == "Variable") return true;
  if (node.op() != "Concat") return false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Node& part = *node.input(i).node;
    if (part.op() != "Variable" || part.name() != PartName(node.name(), size_t(i))) return false;
  }
  return true;
}

Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                std::source_location where) {
  return Variable(graph, initializer, name, VariableOptions{}, where);
}

Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                const VariableOptions& options, std::source_location where) {
  const std::string base(name.empty() ? graph.UniqueName("variable")
                                      : graph.name_scope() + std::string(name));
  RequireOutsideOfBodies(graph, base, where);
  if (!initializer.build) {
    ThrowInvalidArgument(
        fmt::format("{}: its initialiser is empty: Initializer::build holds no function; use "
                    "Zeros, RandomUniform, Value or another function of nn/initializers.h",
                    DescribeVariable(base, where)));
  }
  AllOrNothing nodes(graph);
  const Output variable = PlaceVariable(graph, initializer, base, options, where);
  nodes.Keep();
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
