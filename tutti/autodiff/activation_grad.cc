// Gradients of the activations: one gradient op each, and the gradients of those, so that second
// derivatives exist. A gradient op G(gradient, y) is linear in its first input, so its gradient
// there is itself; where a function is piecewise linear there is nothing more.
#include <cmath>
#include <numbers>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/elementwise.h"

namespace tutti {
namespace {

double Alpha(const GradientContext& g) { return g.node().attr<double>("alpha"); }

GeluOptions Options(const GradientContext& g) {
  return {.approximate = g.node().attr<bool>("approximate")};
}

// For EluGrad(dy, y): the slope y + alpha of the negative side grows with y.
void EluGradGradient(GradientContext& g) {
  const Output y = g.input(1);
  if (g.NeedsInput(0)) g.Set(0, EluGrad(g.gradient(), y, Alpha(g)));
  if (g.NeedsInput(1)) {
    g.Set(1, Select(Greater(y, 0.0f), 0.0f, g.gradient() * g.input(0)));
  }
}

void SigmoidGradGradient(GradientContext& g) {
  const Output y = g.input(1);
  if (g.NeedsInput(0)) g.Set(0, SigmoidGrad(g.gradient(), y));
  if (g.NeedsInput(1)) g.Set(1, g.gradient() * g.input(0) * (1.0f - y * 2.0f));
}

void TanhGradGradient(GradientContext& g) {
  const Output y = g.input(1);
  if (g.NeedsInput(0)) g.Set(0, TanhGrad(g.gradient(), y));
  if (g.NeedsInput(1)) g.Set(1, g.gradient() * g.input(0) * (y * -2.0f));
}

void SoftplusGradGradient(GradientContext& g) {
  const Output x = g.input(1);
  if (g.NeedsInput(0)) g.Set(0, SoftplusGrad(g.gradient(), x));
  if (g.NeedsInput(1)) g.Set(1, SigmoidGrad(g.gradient() * g.input(0), Sigmoid(x)));
}

// The second derivative of the exact form: with the normal density p, (2 - x^2) p(x).
Output GeluSecond(Output x) {
  const Output square = Square(x);
  const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return (2.0f - square) * (Exp(square * -0.5f) * scale);
}

// Of x/2 (1 + t) with t = tanh(u), u = c (x + k x^3): s u' + x/2 (s u'' - 2 t s u'^2), s = 1 - t^2.
Output GeluApproximateSecond(Output x) {
  const double c = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const double k = 0.044715;
  const Output square = Square(x);
  const Output t = Tanh(x * (square * (c * k) + c));
  const Output s = 1.0f - Square(t);
  const Output u1 = square * (3 * c * k) + c;
  const Output u2 = x * (6 * c * k);
  return s * (u1 + x * 0.5f * (u2 - t * 2.0f * Square(u1)));
}

void GeluGradGradient(GradientContext& g) {
  const Output x = g.input(1);
  if (g.NeedsInput(0)) g.Set(0, GeluGrad(g.gradient(), x, Options(g)));
  if (g.NeedsInput(1)) {
    const Output second = Options(g).approximate ? GeluApproximateSecond(x) : GeluSecond(x);
    g.Set(1, g.gradient() * g.input(0) * second);
  }
}

}  // namespace

void RegisterActivationGradients(GradientRegistry& registry) {
  registry.Add("Relu", [](GradientContext& g) { g.Set(0, ReluGrad(g.gradient(), g.output(0))); });
  registry.Add("ReluGrad", [](GradientContext& g) {
    if (g.NeedsInput(0)) g.Set(0, ReluGrad(g.gradient(), g.input(1)));
  });
  registry.Add("Relu6", [](GradientContext& g) { g.Set(0, Relu6Grad(g.gradient(), g.output(0))); });
  registry.Add("Relu6Grad", [](GradientContext& g) {
    if (g.NeedsInput(0)) g.Set(0, Relu6Grad(g.gradient(), g.input(1)));
  });
  registry.Add("LeakyRelu", [](GradientContext& g) {
    g.Set(0, LeakyReluGrad(g.gradient(), g.output(0), Alpha(g)));
  });
  registry.Add("LeakyReluGrad", [](GradientContext& g) {
    if (g.NeedsInput(0)) g.Set(0, LeakyReluGrad(g.gradient(), g.input(1), Alpha(g)));
  });
  registry.Add("Elu",
               [](GradientContext& g) { g.Set(0, EluGrad(g.gradient(), g.output(0), Alpha(g))); });
  registry.Add("EluGrad", EluGradGradient);
  registry.Add("Sigmoid",
               [](GradientContext& g) { g.Set(0, SigmoidGrad(g.gradient(), g.output(0))); });
  registry.Add("SigmoidGrad", SigmoidGradGradient);
  registry.Add("Tanh", [](GradientContext& g) { g.Set(0, TanhGrad(g.gradient(), g.output(0))); });
  registry.Add("TanhGrad", TanhGradGradient);
  registry.Add("Softplus",
               [](GradientContext& g) { g.Set(0, SoftplusGrad(g.gradient(), g.input(0))); });
  registry.Add("SoftplusGrad", SoftplusGradGradient);
  registry.Add(
      "Gelu", [](GradientContext& g) { g.Set(0, GeluGrad(g.gradient(), g.input(0), Options(g))); });
  registry.Add("GeluGrad", GeluGradGradient);
}

}  // namespace tutti
