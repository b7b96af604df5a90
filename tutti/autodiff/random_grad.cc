#include "tutti/autodiff/register.h"
#include "tutti/graph/build.h"

namespace tutti {
namespace {

// The same op with the same seeds, step and offset, applied to the gradient.
OpBuilder Again(GradientContext& g) {
  const Node& node = g.node();
  OpBuilder builder(node.op(), "");
  builder.In(g.gradient()).In(std::span<const Output>(node.inputs()).subspan(1));
  for (const char* attr : {"seed", "node_seed"}) builder.Attr(attr, node.attr<int64_t>(attr));
  return builder;
}

// Dropout multiplies by a mask that depends on nothing but seeds, step and position: so the
// gradient is Dropout too, and no mask is kept between forward and backward.
void DropoutGradient(GradientContext& g) {
  g.Set(0, Again(g)
               .Attr("rate", g.node().attr<double>("rate"))
               .Attr("has_offset", g.node().attr<bool>("has_offset"))
               .Build());
}

void ShuffleGradient(GradientContext& g) {
  g.Set(0, Again(g).Attr("inverse", !g.node().attr<bool>("inverse")).Build());
}

}  // namespace

void RegisterRandomGradients(GradientRegistry& registry) {
  registry.Add("Dropout", DropoutGradient);
  registry.Add("Shuffle", ShuffleGradient);
}

}  // namespace tutti
