// Gradients of normalisation. First order: one fused op (LayerNormGrad, BatchNormGrad) for what
// arrives at y, and a few element-wise nodes for what arrives at the statistics, which is rare.
// Second order: the fused op is written out in elementary ops, and those are differentiated.
#include <array>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/norm.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

// Which elements share a mean: those of a row (the last axis), or those of a channel (all others).
struct Groups {
  bool by_row;
  std::vector<int64_t> axes;

  static Groups ByRow() { return {true, {-1}}; }
  static Groups ByChannel(const Node& node, Output x) {
    if (!x.shape().has_rank()) {
      ThrowInvalidArgument(fmt::format("Gradients: {} needs an x of known rank, got {}",
                                       node.Describe(), x.node->Describe()));
    }
    std::vector<int64_t> axes;
    for (int i = 0; i + 1 < x.shape().rank(); ++i) axes.push_back(i);
    return {false, axes};
  }

  // A statistic made fit to broadcast against x.
  Output Spread(Output statistic) const { return by_row ? ExpandDims(statistic, -1) : statistic; }
  Output MeanOf(Output value) const { return Mean(value, {.axes = axes, .keep_dims = true}); }
};

Output AddedUp(Output a, Output b) {
  if (!a) return b;
  if (!b) return a;
  return Add(a, b);
}

// `value`, of the statistics' shape, divided by the number of elements in a group of x.
Output DividedByGroupSize(Output value, Output x) {
  const int64_t groups = value.shape().elements();
  const int64_t elements = x.shape().elements();
  if (groups > 0 && elements > 0) {
    return Mul(value, double(groups) / double(elements));
  }
  const Output groups_value = Cast(Size(value), x.dtype());
  return Mul(value, Div(groups_value, Cast(Size(x), x.dtype())));
}

// What arrives at the statistics, carried on to x. Any of the gradients may be missing.
Output ThroughStatistics(const Groups& groups, Output x, Output mean, Output rstd, Output dmean,
                         Output dvariance, Output drstd) {
  // rstd = (variance + epsilon) ^ (-1/2).
  if (drstd) {
    const Output cubed = Mul(Mul(rstd, rstd), rstd);
    dvariance = AddedUp(dvariance, Mul(Mul(drstd, cubed), -0.5));
  }
  Output result;
  if (dmean) result = BroadcastLike(groups.Spread(DividedByGroupSize(dmean, x)), x);
  if (dvariance) {
    const Output twice = Mul(DividedByGroupSize(dvariance, x), 2);
    const Output centred = Sub(x, groups.Spread(mean));
    result = AddedUp(result, Mul(groups.Spread(twice), centred));
  }
  return result;
}

void SetGradients(GradientContext& g, const NormGradients& of_y, Output through_statistics) {
  if (g.NeedsInput(0)) {
    if (const Output dx = AddedUp(of_y.x, through_statistics)) g.Set(0, dx);
  }
  if (g.NeedsInput(1) && of_y.scale) g.Set(1, of_y.scale);
  if (g.NeedsInput(2) && of_y.offset) g.Set(2, of_y.offset);
}

void LayerNormGradient(GradientContext& g) {
  const Output x = g.input(0), mean = g.output(1), rstd = g.output(2);
  NormGradients of_y;
  if (g.gradient(0)) of_y = LayerNormGrad(g.gradient(0), x, g.input(1), mean, rstd);
  SetGradients(g, of_y,
               ThroughStatistics(Groups::ByRow(), x, mean, rstd, g.gradient(1), {}, g.gradient(2)));
}

void BatchNormGradient(GradientContext& g) {
  const Output x = g.input(0), mean = g.output(1), rstd = g.output(3);
  NormGradients of_y;
  if (g.gradient(0)) of_y = BatchNormGrad(g.gradient(0), x, g.input(1), mean, rstd);
  SetGradients(g, of_y,
               ThroughStatistics(Groups::ByChannel(g.node(), x), x, mean, rstd, g.gradient(1),
                                 g.gradient(2), g.gradient(3)));
}

// The fused gradient op in elementary ones; in = dy, x, scale, mean, rstd.
std::array<Output, 3> WrittenOut(const Groups& groups, const std::array<Output, 5>& in) {
  const auto& [dy, x, scale, mean, rstd] = in;
  const Output spread = groups.Spread(rstd);
  const Output n = Mul(Sub(x, groups.Spread(mean)), spread);
  const Output d = Mul(dy, scale);
  const Output along = Mul(n, groups.MeanOf(Mul(d, n)));
  const Output dx = Mul(spread, Sub(Sub(d, groups.MeanOf(d)), along));
  return {dx, SumToShapeOf(Mul(dy, n), scale), SumToShapeOf(dy, scale)};
}

void NormGradGradient(GradientContext& g, const Groups& groups) {
  // Copies of the inputs: one of them may be made from another (mean from x), and only the direct
  // way counts here.
  std::array<Output, 5> in;
  for (int i = 0; i < 5; ++i) in[i] = Identity(g.input(i));
  const std::array<Output, 3> results = WrittenOut(groups, in);
  std::vector<Output> ys;
  GradientsOptions options;
  for (int i = 0; i < 3; ++i) {
    if (!g.gradient(i)) continue;
    ys.push_back(results[i]);
    options.initial.push_back(g.gradient(i));
  }
  const auto gradients = Gradients(ys, in, options);
  for (int i = 0; i < 5; ++i) {
    if (g.NeedsInput(i)) g.Set(i, gradients[i]);
  }
}

void LayerNormGradGradient(GradientContext& g) { NormGradGradient(g, Groups::ByRow()); }
void BatchNormGradGradient(GradientContext& g) {
  NormGradGradient(g, Groups::ByChannel(g.node(), g.input(1)));
}

// With rstd = (variance + epsilon) ^ (-1/2), n = (x - mean) * rstd and y = n * scale + offset.
void BatchNormInferenceGradient(GradientContext& g) {
  const Output x = g.input(0), scale = g.input(1), mean = g.input(3), variance = g.input(4);
  const Output dy = g.gradient();
  const Output rstd = Rsqrt(Add(variance, g.node().attr<double>("epsilon")));
  const Output factor = Mul(scale, rstd);
  if (g.NeedsInput(0)) g.Set(0, Mul(dy, factor));
  if (!g.NeedsInput(1) && !g.NeedsInput(2) && !g.NeedsInput(3) && !g.NeedsInput(4)) return;
  const Output sum = SumToShapeOf(dy, scale);
  if (g.NeedsInput(2)) g.Set(2, sum);
  if (g.NeedsInput(3)) g.Set(3, Neg(Mul(sum, factor)));
  if (!g.NeedsInput(1) && !g.NeedsInput(4)) return;
  const Output dscale = Mul(SumToShapeOf(Mul(dy, Sub(x, mean)), scale), rstd);
  if (g.NeedsInput(1)) g.Set(1, dscale);
  if (g.NeedsInput(4)) {
    const Output slope = Mul(Mul(scale, Mul(rstd, rstd)), -0.5);
    g.Set(4, Mul(dscale, slope));
  }
}

}  // namespace

void RegisterNormGradients(GradientRegistry& registry) {
  registry.Add("LayerNorm", LayerNormGradient);
  registry.Add("LayerNormGrad", LayerNormGradGradient);
  registry.Add("BatchNorm", BatchNormGradient);
  registry.Add("BatchNormGrad", BatchNormGradGradient);
  registry.Add("BatchNormInference", BatchNormInferenceGradient);
}

}  // namespace tutti
