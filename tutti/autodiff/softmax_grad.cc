// Gradients of softmax and its losses, by their results where that saves work.
#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"

namespace tutti {
namespace {

Output SumOfRows(Output x) { return Sum(x, {.axes = {-1}, .keep_dims = true}); }

// a + b where either may be missing.
Output AddedUp(Output a, Output b) {
  if (!a) return b;
  if (!b) return a;
  return Add(a, b);
}

void SoftmaxGradient(GradientContext& g) { g.Set(0, SoftmaxGrad(g.output(0), g.gradient())); }
void LogSoftmaxGradient(GradientContext& g) { g.Set(0, LogSoftmaxGrad(g.output(0), g.gradient())); }

// r = y * (dy - sum(dy * y)), with the gradient h arriving at r.
void SoftmaxGradGradient(GradientContext& g) {
  const Output y = g.input(0), dy = g.input(1), h = g.gradient();
  if (g.NeedsInput(0)) {
    const Output centred = Sub(dy, SumOfRows(Mul(dy, y)));
    g.Set(0, Sub(Mul(h, centred), Mul(dy, SumOfRows(Mul(h, y)))));
  }
  if (g.NeedsInput(1)) g.Set(1, SoftmaxGrad(y, h));
}

// r = dy - exp(y) * sum(dy), with the gradient h arriving at r.
void LogSoftmaxGradGradient(GradientContext& g) {
  const Output y = g.input(0), dy = g.input(1), h = g.gradient();
  const Output weighted = Mul(h, Exp(y));
  if (g.NeedsInput(0)) g.Set(0, Neg(Mul(weighted, SumOfRows(dy))));
  if (g.NeedsInput(1)) g.Set(1, Sub(h, SumOfRows(weighted)));
}

// loss = -sum(labels * log p), backprop = p * sum(labels) - labels, where p = Softmax(logits).
void SoftmaxCrossEntropyGradient(GradientContext& g) {
  const Output logits = g.input(0), labels = g.input(1);
  const Output of_loss = g.gradient(0) ? ExpandDims(g.gradient(0), -1) : Output();
  const Output of_backprop = g.gradient(1);
  if (g.NeedsInput(0)) {
    Output first, second;
    if (of_loss) first = Mul(of_loss, g.output(1));
    if (of_backprop) second = Mul(SoftmaxGrad(Softmax(logits), of_backprop), SumOfRows(labels));
    g.Set(0, AddedUp(first, second));
  }
  if (g.NeedsInput(1)) {
    Output first, second;
    if (of_loss) first = Neg(Mul(of_loss, LogSoftmax(logits)));
    if (of_backprop) second = Sub(SumOfRows(Mul(Softmax(logits), of_backprop)), of_backprop);
    g.Set(1, AddedUp(first, second));
  }
}

void SparseSoftmaxCrossEntropyGradient(GradientContext& g) {
  if (!g.NeedsInput(0)) return;
  Output first, second;
  if (g.gradient(0)) first = Mul(ExpandDims(g.gradient(0), -1), g.output(1));
  if (g.gradient(1)) second = SoftmaxGrad(Softmax(g.input(0)), g.gradient(1));
  g.Set(0, AddedUp(first, second));
}

void SigmoidCrossEntropyGradient(GradientContext& g) {
  const Output logits = g.input(0);
  if (g.NeedsInput(0)) g.Set(0, Mul(g.gradient(), Sub(Sigmoid(logits), g.input(1))));
  if (g.NeedsInput(1)) g.Set(1, Neg(Mul(g.gradient(), logits)));
}

void L2LossGradient(GradientContext& g) { g.Set(0, Mul(g.input(0), g.gradient())); }

}  // namespace

void RegisterSoftmaxGradients(GradientRegistry& registry) {
  registry.Add("Softmax", SoftmaxGradient);
  registry.Add("LogSoftmax", LogSoftmaxGradient);
  registry.Add("SoftmaxGrad", SoftmaxGradGradient);
  registry.Add("LogSoftmaxGrad", LogSoftmaxGradGradient);
  registry.Add("SoftmaxCrossEntropy", SoftmaxCrossEntropyGradient);
  registry.Add("SparseSoftmaxCrossEntropy", SparseSoftmaxCrossEntropyGradient);
  registry.Add("SigmoidCrossEntropy", SigmoidCrossEntropyGradient);
  registry.Add("L2Loss", L2LossGradient);
}

}  // namespace tutti
