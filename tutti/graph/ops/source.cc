#include "tutti/graph/ops/source.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status InferConstant(InferContext& c) {
  const Tensor& value = c.attr<Tensor>("value");
  if (!value.valid()) return c.Error("attribute \"value\" holds no tensor");
  c.SetOutput(0, value.dtype(), value.shape());
  return absl::OkStatus();
}

absl::Status InferDeclared(InferContext& c) {
  const DType dtype = c.attr<DType>("dtype");
  if (dtype == DType::kInvalid) return c.Error("attribute \"dtype\" is invalid");
  c.SetOutput(0, dtype, c.attr<Shape>("shape"));
  return absl::OkStatus();
}

}  // namespace

void RegisterSourceOps(OpRegistry& registry) {
  registry.Add({.name = "Constant",
                .attrs = {{"value", AttrType::kTensor}},
                .infer = InferConstant,
                .gradient = Gradient::kZero,
                .source = true});
  registry.Add({.name = "Placeholder",
                .attrs = {{"dtype", AttrType::kDType}, {"shape", AttrType::kShape}},
                .infer = InferDeclared,
                .gradient = Gradient::kZero,
                .source = true});
  // A value that a subgraph is called with; made by If and While, never by users.
  registry.Add({.name = "Arg",
                .attrs = {{"dtype", AttrType::kDType}, {"shape", AttrType::kShape}},
                .infer = InferDeclared,
                .gradient = Gradient::kZero,
                .source = true});
}

Output Constant(Graph& graph, Tensor value, std::string_view name, std::source_location where) {
  return OpBuilder("Constant", name).On(graph).At(where).Attr("value", std::move(value)).Build();
}

Output Placeholder(Graph& graph, DType dtype, const Shape& shape, std::string_view name,
                   std::source_location where) {
  return OpBuilder("Placeholder", name)
      .On(graph)
      .At(where)
      .Attr("dtype", dtype)
      .Attr("shape", shape)
      .Build();
}

}  // namespace tutti
