// A convolution is linear in x and in the filter, and so are its two backward ops: the three are
// one trilinear form with one argument left open, so each one's gradients are the other two.
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

Conv2DOptions OptionsOf(const Node& node) {
  const WindowAttrs attrs = WindowAttrsOf(node);
  Conv2DOptions options = {.strides = {attrs.strides[0], attrs.strides[1]},
                           .dilations = {attrs.dilations[0], attrs.dilations[1]},
                           .pads = {attrs.pads.begin(), attrs.pads.end()}};
  options.padding = attrs.padding == "SAME"    ? Padding::kSame
                    : attrs.padding == "VALID" ? Padding::kValid
                                               : Padding::kExplicit;
  return options;
}

// The three sides of the form.
struct DenseForm {
  static Output Forward(Output x, Output filter, const Conv2DOptions& options) {
    return Conv2D(x, filter, options);
  }
  static Output OfInput(Output filter, Output dy, Output x, const Conv2DOptions& options) {
    return Conv2DBackpropInput(filter, dy, ShapeOf(x), options);
  }
  static Output OfFilter(Output x, Output dy, Output filter, const Conv2DOptions& options) {
    return Conv2DBackpropFilter(x, dy, ShapeOf(filter), options);
  }
};
struct DepthwiseForm {
  static Output Forward(Output x, Output filter, const Conv2DOptions& options) {
    return DepthwiseConv2D(x, filter, options);
  }
  static Output OfInput(Output filter, Output dy, Output x, const Conv2DOptions& options) {
    return DepthwiseConv2DBackpropInput(filter, dy, ShapeOf(x), options);
  }
  static Output OfFilter(Output x, Output dy, Output filter, const Conv2DOptions& options) {
    return DepthwiseConv2DBackpropFilter(x, dy, ShapeOf(filter), options);
  }
};

// y = Forward(x, filter)
template <typename Form>
void ForwardGradient(GradientContext& ctx) {
  const Conv2DOptions options = OptionsOf(ctx.node());
  const Output x = ctx.input(0), filter = ctx.input(1), g = ctx.gradient();
  if (ctx.NeedsInput(0)) ctx.Set(0, Form::OfInput(filter, g, x, options));
  if (ctx.NeedsInput(1)) ctx.Set(1, Form::OfFilter(x, g, filter, options));
}

// dx = OfInput(filter, dy)
template <typename Form>
void OfInputGradient(GradientContext& ctx) {
  const Conv2DOptions options = OptionsOf(ctx.node());
  const Output filter = ctx.input(0), dy = ctx.input(1), g = ctx.gradient();
  if (ctx.NeedsInput(0)) ctx.Set(0, Form::OfFilter(g, dy, filter, options));
  if (ctx.NeedsInput(1)) ctx.Set(1, Form::Forward(g, filter, options));
}

// dfilter = OfFilter(x, dy)
template <typename Form>
void OfFilterGradient(GradientContext& ctx) {
  const Conv2DOptions options = OptionsOf(ctx.node());
  const Output x = ctx.input(0), dy = ctx.input(1), g = ctx.gradient();
  if (ctx.NeedsInput(0)) ctx.Set(0, Form::OfInput(g, dy, x, options));
  if (ctx.NeedsInput(1)) ctx.Set(1, Form::Forward(x, g, options));
}

// The transpose is OfInput with x in the place of dy.
void TransposeGradient(GradientContext& ctx) {
  const Conv2DOptions options = OptionsOf(ctx.node());
  const Output x = ctx.input(0), filter = ctx.input(1), g = ctx.gradient();
  if (ctx.NeedsInput(0)) ctx.Set(0, DenseForm::Forward(g, filter, options));
  if (ctx.NeedsInput(1)) ctx.Set(1, DenseForm::OfFilter(g, x, filter, options));
}

void BiasAddGradient(GradientContext& ctx) {
  if (ctx.NeedsInput(0)) ctx.Set(0, ctx.gradient());
  if (ctx.NeedsInput(1)) ctx.Set(1, BiasAddGrad(ctx.gradient()));
}

// Every row receives the sum's gradient.
void BiasAddGradGradient(GradientContext& ctx) {
  if (ctx.NeedsInput(0)) ctx.Set(0, BiasAdd(ZerosLike(ctx.input(0)), ctx.gradient()));
}

}  // namespace

void RegisterConvGradients(GradientRegistry& registry) {
  registry.Add("BiasAdd", BiasAddGradient);
  registry.Add("BiasAddGrad", BiasAddGradGradient);
  registry.Add("Conv2D", ForwardGradient<DenseForm>);
  registry.Add("Conv2DBackpropInput", OfInputGradient<DenseForm>);
  registry.Add("Conv2DBackpropFilter", OfFilterGradient<DenseForm>);
  registry.Add("DepthwiseConv2D", ForwardGradient<DepthwiseForm>);
  registry.Add("DepthwiseConv2DBackpropInput", OfInputGradient<DepthwiseForm>);
  registry.Add("DepthwiseConv2DBackpropFilter", OfFilterGradient<DepthwiseForm>);
  registry.Add("Conv2DTranspose", TransposeGradient);
}

}  // namespace tutti
