#include "tutti/autodiff/dims_of.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

void IdentityGradient(GradientContext& g) { g.Set(0, g.gradient()); }

// Of all that only change the dimensions.
void ReshapeGradient(GradientContext& g) { g.Set(0, Reshape(g.gradient(), DimsOf(g.input(0)))); }

void FillGradient(GradientContext& g) { g.Set(1, Sum(g.gradient())); }

}  // namespace

void RegisterShapeGradients(GradientRegistry& registry) {
  registry.Add("Identity", IdentityGradient);
  registry.Add("Reshape", ReshapeGradient);
  registry.Add("ExpandDims", ReshapeGradient);
  registry.Add("Squeeze", ReshapeGradient);
  registry.Add("Fill", FillGradient);
}

}  // namespace tutti
