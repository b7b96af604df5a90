#include "tutti/graph/ops/activation.h"

#include <cmath>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status RequireAlpha(const InferContext& c) {
  if (c.def().FindAttr("alpha") == nullptr) return absl::OkStatus();
  const double alpha = c.attr<double>("alpha");
  if (alpha >= 0 && std::isfinite(alpha)) return absl::OkStatus();
  return c.Error("alpha is {}; expected a finite number, 0 or above", alpha);
}

absl::Status InferActivation(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(RequireAlpha(c));
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::Status InferActivationGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(RequireAlpha(c));
  const auto shape = c.shape(0).MergedWith(c.shape(1));
  if (!shape) {
    return c.Error("shapes differ: {}, {}", c.DescribeInput(0), c.DescribeInput(1));
  }
  c.SetOutput(0, c.dtype(0), *shape);
  return absl::OkStatus();
}

// The op and its gradient op, which looks at the result ("y") or the argument ("x").
void AddPair(OpRegistry& registry, const std::string& name, const char* looks_at,
             std::vector<AttrDef> attrs = {}) {
  registry.Add({.name = name,
                .inputs = {"x"},
                .attrs = attrs,
                .infer = InferActivation,
                .gradient = Gradient::kDefined});
  registry.Add({.name = name + "Grad",
                .inputs = {"gradient", looks_at},
                .attrs = std::move(attrs),
                .infer = InferActivationGrad,
                .gradient = Gradient::kDefined});
}

}  // namespace

void RegisterActivationOps(OpRegistry& registry) {
  AddPair(registry, "Relu", "y");
  AddPair(registry, "Relu6", "y");
  AddPair(registry, "LeakyRelu", "y", {{"alpha", 0.2}});
  AddPair(registry, "Elu", "y", {{"alpha", 1.0}});
  AddPair(registry, "Sigmoid", "y");
  AddPair(registry, "Tanh", "y");
  AddPair(registry, "Softplus", "x");
  AddPair(registry, "Gelu", "x", {{"approximate", false}});
}

#define TUTTI_ACTIVATION(Name)                                                                 \
  Output Name(Input x, std::string_view name) { return OpBuilder(#Name, name).In(x).Build(); } \
  Output Name##Grad(Input gradient, Input at, std::string_view name) {                         \
    return OpBuilder(#Name "Grad", name).In(gradient).In(at).Build();                          \
  }
TUTTI_ACTIVATION(Relu)
TUTTI_ACTIVATION(Relu6)
TUTTI_ACTIVATION(Sigmoid)
TUTTI_ACTIVATION(Tanh)
TUTTI_ACTIVATION(Softplus)
#undef TUTTI_ACTIVATION

Output LeakyRelu(Input x, double alpha, std::string_view name) {
  return OpBuilder("LeakyRelu", name).In(x).Attr("alpha", alpha).Build();
}
Output LeakyReluGrad(Input gradient, Input y, double alpha, std::string_view name) {
  return OpBuilder("LeakyReluGrad", name).In(gradient).In(y).Attr("alpha", alpha).Build();
}

Output Elu(Input x, double alpha, std::string_view name) {
  return OpBuilder("Elu", name).In(x).Attr("alpha", alpha).Build();
}
Output EluGrad(Input gradient, Input y, double alpha, std::string_view name) {
  return OpBuilder("EluGrad", name).In(gradient).In(y).Attr("alpha", alpha).Build();
}

Output Gelu(Input x, const GeluOptions& options, std::string_view name) {
  return OpBuilder("Gelu", name).In(x).Attr("approximate", options.approximate).Build();
}
Output GeluGrad(Input gradient, Input x, const GeluOptions& options, std::string_view name) {
  return OpBuilder("GeluGrad", name)
      .In(gradient)
      .In(x)
      .Attr("approximate", options.approximate)
      .Build();
}

}  // namespace tutti
