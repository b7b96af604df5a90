#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/pool.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

PoolOptions OptionsOf(const Node& node) {
  const auto& window = node.attr<std::vector<int64_t>>("window");
  const auto& strides = node.attr<std::vector<int64_t>>("strides");
  return {
      .window = {window[0], window[1]},
      .strides = {strides[0], strides[1]},
      .padding = node.attr<std::string>("padding") == "SAME" ? Padding::kSame : Padding::kValid};
}

void MaxPoolGradient(GradientContext& ctx) {
  ctx.Set(0, MaxPoolGrad(ctx.input(0), ctx.output(0), ctx.gradient(), OptionsOf(ctx.node())));
}

// Where the maxima stand does not change with x, so only the third input matters, and in that both
// ops are linear and each other's transpose.
void MaxPoolGradGradient(GradientContext& ctx) {
  if (!ctx.NeedsInput(2)) return;
  ctx.Set(2, MaxPoolGradGrad(ctx.input(0), ctx.input(1), ctx.gradient(), OptionsOf(ctx.node())));
}
void MaxPoolGradGradGradient(GradientContext& ctx) {
  if (!ctx.NeedsInput(2)) return;
  ctx.Set(2, MaxPoolGrad(ctx.input(0), ctx.input(1), ctx.gradient(), OptionsOf(ctx.node())));
}

void AvgPoolGradient(GradientContext& ctx) {
  ctx.Set(0, AvgPoolGrad(ctx.gradient(), ShapeOf(ctx.input(0)), OptionsOf(ctx.node())));
}
void AvgPoolGradGradient(GradientContext& ctx) {
  if (ctx.NeedsInput(0)) ctx.Set(0, AvgPool(ctx.gradient(), OptionsOf(ctx.node())));
}

void GlobalAvgPoolGradient(GradientContext& ctx) {
  ctx.Set(0, GlobalAvgPoolGrad(ctx.gradient(), ShapeOf(ctx.input(0))));
}
void GlobalAvgPoolGradGradient(GradientContext& ctx) {
  if (ctx.NeedsInput(0)) ctx.Set(0, GlobalAvgPool(ctx.gradient()));
}

}  // namespace

void RegisterPoolGradients(GradientRegistry& registry) {
  registry.Add("MaxPool", MaxPoolGradient);
  registry.Add("MaxPoolGrad", MaxPoolGradGradient);
  registry.Add("MaxPoolGradGrad", MaxPoolGradGradGradient);
  registry.Add("AvgPool", AvgPoolGradient);
  registry.Add("AvgPoolGrad", AvgPoolGradGradient);
  registry.Add("GlobalAvgPool", GlobalAvgPoolGradient);
  registry.Add("GlobalAvgPoolGrad", GlobalAvgPoolGradGradient);
}

}  // namespace tutti
