// Gradients of the element-wise ops. Where an input was broadcast, SumToShapeOf brings its gradient
// back to the input's shape.
#include <cmath>
#include <numbers>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"

namespace tutti {
namespace {

// For inputs of a broadcasting op.
void SetSummed(GradientContext& g, int i, Output gradient) {
  g.Set(i, SumToShapeOf(gradient, g.input(i)));
}

void AddGradient(GradientContext& g) {
  for (int i = 0; i < 2; ++i) {
    if (g.NeedsInput(i)) SetSummed(g, i, g.gradient());
  }
}

void SubGradient(GradientContext& g) {
  if (g.NeedsInput(0)) SetSummed(g, 0, g.gradient());
  if (g.NeedsInput(1)) g.Set(1, Neg(SumToShapeOf(g.gradient(), g.input(1))));
}

void MulGradient(GradientContext& g) {
  for (int i = 0; i < 2; ++i) {
    if (g.NeedsInput(i)) SetSummed(g, i, g.gradient() * g.input(1 - i));
  }
}

void DivGradient(GradientContext& g) {
  const Output quotient = g.gradient() / g.input(1);
  if (g.NeedsInput(0)) SetSummed(g, 0, quotient);
  if (g.NeedsInput(1)) g.Set(1, Neg(SumToShapeOf(quotient * g.output(0), g.input(1))));
}

void ModGradient(GradientContext& g) {
  if (g.NeedsInput(0)) SetSummed(g, 0, g.gradient());
  if (g.NeedsInput(1)) {
    const Output times = FloorDiv(g.input(0), g.input(1));
    g.Set(1, Neg(SumToShapeOf(g.gradient() * times, g.input(1))));
  }
}

void PowGradient(GradientContext& g) {
  const Output a = g.input(0);
  const Output b = g.input(1);
  if (g.NeedsInput(0)) {
    // Where b is 0 the power is constant, also at a = 0, where a^(b-1) is infinite.
    const Output slope = b * Pow(a, b - 1.0f);
    SetSummed(g, 0, Select(Equal(b, 0.0f), 0.0f, g.gradient() * slope));
  }
  if (g.NeedsInput(1)) {
    const Output positive = Greater(a, 0.0f);
    const Output log = Log(Select(positive, a, 1.0f));
    SetSummed(g, 1, g.gradient() * g.output(0) * log);
  }
}

// Of two equal values the first gets the gradient.
void MaximumGradient(GradientContext& g) {
  const Output first = GreaterEqual(g.input(0), g.input(1));
  if (g.NeedsInput(0)) SetSummed(g, 0, Select(first, g.gradient(), 0.0f));
  if (g.NeedsInput(1)) SetSummed(g, 1, Select(first, 0.0f, g.gradient()));
}

void MinimumGradient(GradientContext& g) {
  const Output first = LessEqual(g.input(0), g.input(1));
  if (g.NeedsInput(0)) SetSummed(g, 0, Select(first, g.gradient(), 0.0f));
  if (g.NeedsInput(1)) SetSummed(g, 1, Select(first, 0.0f, g.gradient()));
}

void SquaredDifferenceGradient(GradientContext& g) {
  const Output scaled = (g.input(0) - g.input(1)) * 2.0f * g.gradient();
  if (g.NeedsInput(0)) SetSummed(g, 0, scaled);
  if (g.NeedsInput(1)) g.Set(1, Neg(SumToShapeOf(scaled, g.input(1))));
}

void AddNGradient(GradientContext& g) {
  for (int i = 0; i < g.node().num_inputs(); ++i) {
    if (g.NeedsInput(i)) g.Set(i, g.gradient());
  }
}

void SelectGradient(GradientContext& g) {
  const Output condition = g.input(0);
  if (g.NeedsInput(1)) SetSummed(g, 1, Select(condition, g.gradient(), 0.0f));
  if (g.NeedsInput(2)) SetSummed(g, 2, Select(condition, 0.0f, g.gradient()));
}

void CastGradient(GradientContext& g) {
  if (!IsFloating(g.input(0).dtype()) || !IsFloating(g.output(0).dtype())) return;
  g.Set(0, Cast(g.gradient(), g.input(0).dtype()));
}

void ClipGradient(GradientContext& g) {
  g.Set(0, Select(Equal(g.input(0), g.output(0)), g.gradient(), 0.0f));
}

// f(gradient, x, y) for an op y of one input x.
template <typename Function>
void AddUnary(GradientRegistry& registry, const char* op, Function f) {
  registry.Add(op, [f](GradientContext& g) { g.Set(0, f(g.gradient(), g.input(0), g.output(0))); });
}

}  // namespace

void RegisterElementwiseGradients(GradientRegistry& registry) {
  registry.Add("Add", AddGradient);
  registry.Add("Sub", SubGradient);
  registry.Add("Mul", MulGradient);
  registry.Add("Div", DivGradient);
  registry.Add("Mod", ModGradient);
  registry.Add("Pow", PowGradient);
  registry.Add("Maximum", MaximumGradient);
  registry.Add("Minimum", MinimumGradient);
  registry.Add("SquaredDifference", SquaredDifferenceGradient);
  registry.Add("AddN", AddNGradient);
  registry.Add("Select", SelectGradient);
  registry.Add("Cast", CastGradient);
  registry.Add("Clip", ClipGradient);
  AddUnary(registry, "Neg", [](Output dy, Output, Output) { return Neg(dy); });
  AddUnary(registry, "Abs", [](Output dy, Output x, Output) { return dy * Sign(x); });
  AddUnary(registry, "Square", [](Output dy, Output x, Output) { return dy * (x * 2.0f); });
  AddUnary(registry, "Sqrt", [](Output dy, Output, Output y) { return dy * 0.5f / y; });
  AddUnary(registry, "Rsqrt",
           [](Output dy, Output, Output y) { return dy * -0.5f * (y * Square(y)); });
  AddUnary(registry, "Exp", [](Output dy, Output, Output y) { return dy * y; });
  AddUnary(registry, "Log", [](Output dy, Output x, Output) { return dy / x; });
  AddUnary(registry, "Log1p", [](Output dy, Output x, Output) { return dy / (x + 1.0f); });
  AddUnary(registry, "Sin", [](Output dy, Output x, Output) { return dy * Cos(x); });
  AddUnary(registry, "Cos", [](Output dy, Output x, Output) { return -(dy * Sin(x)); });
  AddUnary(registry, "Erf", [](Output dy, Output x, Output) {
    return dy * (Exp(-Square(x)) * (2.0 * std::numbers::inv_sqrtpi));
  });
}

}  // namespace tutti
