#include "tutti/graph/ops/state.h"

#include <fmt/format.h>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

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

}  // namespace

void RegisterStateOps(OpRegistry& registry) {
  registry.Add({.name = "Variable",
                .attrs = {{"dtype", AttrType::kDType},
                          {"shape", AttrType::kShape},
                          {"container", std::string()},
                          {"initializer", std::string()}},
                .infer = InferVariable,
                .gradient = Gradient::kZero,
                .stateful = true,
                .provides_outputs = true});
  for (const char* name : {"Assign", "AssignAdd", "AssignSub"}) {
    registry.Add({.name = name,
                  .inputs = {"&variable", "value"},
                  .infer = InferAssign,
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

Output Variable(Graph& graph, const Initializer& initializer, std::string_view name,
                std::source_location where) {
  const std::string base(name.empty() ? graph.UniqueName("variable")
                                      : graph.name_scope() + std::string(name));
  // The variable names the node that initialises it, so that any client that has the graph can find
  // it.
  OpBuilder builder("Variable", name.empty() ? base.substr(graph.name_scope().size()) : name);
  const Output variable = builder.On(graph)
                              .At(where)
                              .Attr("dtype", initializer.dtype)
                              .Attr("shape", initializer.shape)
                              .Attr("initializer", base + "/initialize")
                              .Build();
  const std::string relative = base.substr(graph.name_scope().size());
  const Output value = initializer.build(graph);
  OpBuilder("Assign", relative + "/initialize").At(where).In(variable).In(value).Build();
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
Output IsInitialized(Input variable, std::string_view name) {
  return OpBuilder("IsInitialized", name).In(variable).Build();
}

}  // namespace tutti
