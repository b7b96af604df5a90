// What FuseMatrix and ChooseLayouts make: products and convolutions with what follows them, and the
// change from one layout to another. Internal: no client builds them, so they have no functions.
#include "tutti/graph/ops/fused_matrix.h"

#include "tutti/graph/build.h"

namespace tutti {
namespace {

// The op's own rules, by asking the op that it came from: bias and activation change no type.
absl::Status InferAs(InferContext& c, std::string_view op) {
  if (c.num_inputs() > 3) return c.Error("takes at most one bias; got {} inputs", c.num_inputs());
  NodeSpec plain = c.spec();
  plain.inputs.resize(2);
  std::vector<ValueType> outputs;
  const OpDef& def = *OpRegistry::Global().Find(op);
  InferContext inner(def, plain, outputs);
  TUTTI_RETURN_IF_ERROR(def.infer(inner));
  c.SetOutput(0, outputs[0].dtype, outputs[0].shape);
  if (c.num_inputs() < 3) return absl::OkStatus();
  const Shape bias = Shape{outputs[0].shape.dim(-1)};
  if (!c.shape(2).CompatibleWith(bias) || c.dtype(2) != c.dtype(0)) {
    return c.Error("the bias is {} {}; expected {} {}", NameOf(c.dtype(2)), c.shape(2).ToString(),
                   NameOf(c.dtype(0)), bias.ToString());
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterFusedMatrixOps(OpRegistry& registry) {
  // `activation` is the name of the op that comes last, "" for none.
  registry.Add(
      {.name = "_FusedMatMul",
       .inputs = {"a", "b", "bias..."},
       .attrs = {{"transpose_a", false}, {"transpose_b", false}, {"activation", std::string()}},
       .infer = [](InferContext& c) { return InferAs(c, "MatMul"); },
       .internal = true});
  registry.Add({.name = "_FusedConv2D",
                .inputs = {"x", "filter", "bias..."},
                .attrs = {{"strides", std::vector<int64_t>{1, 1}},
                          {"dilations", std::vector<int64_t>{1, 1}},
                          {"padding", std::string("SAME")},
                          {"pads", std::vector<int64_t>{}},
                          {"activation", std::string()}},
                .infer = [](InferContext& c) { return InferAs(c, "Conv2D"); },
                .internal = true});
  // variable -= learning_rate * scale * op(a) x op(b): a gradient that is a product is never
  // stored, but summed straight into the variable.
  registry.Add({.name = "_MatMulDescent",
                .inputs = {"&variable", "learning_rate", "a", "b", "scale..."},
                .attrs = {{"transpose_a", false}, {"transpose_b", false}},
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, c.dtype(0), c.shape(0));
                      return absl::OkStatus();
                    },
                .stateful = true,
                .internal = true,
                .provides_outputs = true});
  // The same values in another layout; which one is in the memory table of the program.
  registry.Add({.name = "_Reorder",
                .inputs = {"x"},
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, c.dtype(0), c.shape(0));
                      return absl::OkStatus();
                    },
                .internal = true});
}

}  // namespace tutti
