#include "tutti/graph/ops/control.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status InferAssert(InferContext& c) { return c.RequireDType(0, kBool); }

absl::Status InferCheckNumerics(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::Status InferPrint(InferContext& c) {
  if (c.attr<int64_t>("most_values") < 1) {
    return c.Error("most_values is {}; expected at least 1", c.attr<int64_t>("most_values"));
  }
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

}  // namespace

void RegisterControlOps(OpRegistry& registry) {
  registry.Add({.name = "NoOp",
                .infer = [](InferContext&) { return absl::OkStatus(); },
                .stateful = true,
                .without_effects = true});
  registry.Add({.name = "Assert",
                .inputs = {"condition", "data..."},
                .attrs = {{"message", std::string()}},
                .infer = InferAssert,
                .stateful = true,
                .only_checks = true});
  registry.Add({.name = "CheckNumerics",
                .inputs = {"x"},
                .attrs = {{"message", std::string()}},
                .infer = InferCheckNumerics,
                .gradient = Gradient::kDefined,
                .stateful = true,
                .only_checks = true});
  registry.Add({.name = "Print",
                .inputs = {"x"},
                .attrs = {{"message", std::string()}, {"most_values", int64_t{16}}},
                .infer = InferPrint,
                .gradient = Gradient::kDefined,
                .stateful = true});
  RegisterControlFlowOps(registry);
}

const Node* NoOp(Graph& graph, std::string_view name) {
  return OpBuilder("NoOp", name).On(graph).BuildNode();
}

const Node* Group(Graph& graph, std::span<const Node* const> nodes, std::string_view name) {
  return OpBuilder("NoOp", name).On(graph).After(nodes).BuildNode();
}

const Node* Assert(Input condition, std::span<const Output> data, std::string_view message,
                   std::string_view name) {
  return OpBuilder("Assert", name)
      .In(condition)
      .In(data)
      .Attr("message", std::string(message))
      .BuildNode();
}

Output CheckNumerics(Input x, std::string_view message, std::string_view name) {
  return OpBuilder("CheckNumerics", name).In(x).Attr("message", std::string(message)).Build();
}

Output Print(Input x, std::string_view message, const PrintOptions& options,
             std::string_view name) {
  return OpBuilder("Print", name)
      .In(x)
      .Attr("message", std::string(message))
      .Attr("most_values", options.most_values)
      .Build();
}

}  // namespace tutti
