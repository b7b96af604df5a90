#include "tutti/graph/ops/conv.h"

#include "tutti/base/checked.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

std::vector<AttrDef> ConvAttrs() {
  return {{"strides", std::vector<int64_t>{1, 1}},
          {"dilations", std::vector<int64_t>{1, 1}},
          {"padding", std::string("SAME")},
          {"pads", std::vector<int64_t>{}}};
}

WindowAttrs AttrsOf(const InferContext& c) {
  return {.strides = c.attr<std::vector<int64_t>>("strides"),
          .dilations = c.attr<std::vector<int64_t>>("dilations"),
          .padding = c.attr<std::string>("padding"),
          .pads = c.attr<std::vector<int64_t>>("pads")};
}

// Unknown ranks become four unknown dimensions, so that what follows needs one case only.
Shape FourDims(const Shape& shape) { return shape.has_rank() ? shape : Shape::UnknownOfRank(4); }

absl::Status RequireEqual(const InferContext& c, std::string_view a, int64_t size_a,
                          std::string_view b, int64_t size_b) {
  if (size_a == size_b || size_a == kUnknownDim || size_b == kUnknownDim) return absl::OkStatus();
  return c.Error("{} is {}, but {} is {}; they must be equal", a, size_a, b, size_b);
}

// The shape of Conv2D's (or DepthwiseConv2D's) output for concrete or partly unknown x and filter.
absl::StatusOr<Shape> ConvOutput(const InferContext& c, const Shape& x, const Shape& filter,
                                 bool depthwise) {
  TUTTI_RETURN_IF_ERROR(RequireEqual(c, "x's number of channels (its dimension 3)", x.dim(3),
                                     "the filter's dimension 2", filter.dim(2)));
  TUTTI_ASSIGN_OR_RETURN(const Window window, ResolveWindow(AttrsOf(c), x.dim(1), x.dim(2),
                                                            filter.dim(0), filter.dim(1)));
  int64_t channels = filter.dim(3);
  if (depthwise) {
    const bool known = filter.dim(2) != kUnknownDim && filter.dim(3) != kUnknownDim;
    channels = known ? CheckedMul(filter.dim(2), filter.dim(3)).value_or(-2) : kUnknownDim;
  }
  const int64_t dims[] = {x.dim(0), window.height.output, window.width.output, channels};
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return c.Error("the output is too large: {}", why);
  return *shape;
}

template <bool kDepthwise>
absl::Status InferConv(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 4));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 4));
  TUTTI_ASSIGN_OR_RETURN(const Shape y,
                         ConvOutput(c, FourDims(c.shape(0)), FourDims(c.shape(1)), kDepthwise));
  c.SetOutput(0, c.dtype(0), y);
  return absl::OkStatus();
}

absl::Status InferConvTranspose(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 4));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 4));
  const Shape x = FourDims(c.shape(0));
  const Shape filter = FourDims(c.shape(1));
  TUTTI_RETURN_IF_ERROR(RequireEqual(c, "x's number of channels (its dimension 3)", x.dim(3),
                                     "the filter's dimension 3", filter.dim(3)));
  TUTTI_ASSIGN_OR_RETURN(
      const Window window,
      ResolveTransposedWindow(AttrsOf(c), x.dim(1), x.dim(2), filter.dim(0), filter.dim(1)));
  const int64_t dims[] = {x.dim(0), window.height.input, window.width.input, filter.dim(2)};
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return c.Error("the output is too large: {}", why);
  c.SetOutput(0, c.dtype(0), *shape);
  return absl::OkStatus();
}

// The two backward ops: input 0 is the filter or x, input 1 the gradient of the convolution's
// output, and input 2 the shape of what is wanted.
template <bool kDepthwise, bool kOfFilter>
absl::Status InferBackprop(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  if (c.dtype(1) != c.dtype(0)) {
    return c.Error("{}, but {}; both must have one dtype", c.DescribeInput(0), c.DescribeInput(1));
  }
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 4));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 4));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(2));
  TUTTI_ASSIGN_OR_RETURN(Shape wanted, c.ShapeInput(2));
  if (wanted.has_rank() && wanted.rank() != 4) {
    return c.Error("{} must name 4 dimensions; got {}", c.def().inputs[2], wanted.ToString());
  }
  wanted = FourDims(wanted);
  const Shape given = FourDims(c.shape(0));
  TUTTI_ASSIGN_OR_RETURN(const Shape y, ConvOutput(c, kOfFilter ? given : wanted,
                                                   kOfFilter ? wanted : given, kDepthwise));
  if (!y.CompatibleWith(c.shape(1))) {
    return c.Error("dy is {}, but the convolution's output is {}", c.shape(1).ToString(),
                   y.ToString());
  }
  c.SetOutput(0, c.dtype(0), wanted);
  return absl::OkStatus();
}

absl::Status InferBiasAdd(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 1));
  if (c.shape(0).has_rank() && c.shape(1).has_rank()) {
    TUTTI_RETURN_IF_ERROR(RequireEqual(c, "x's last dimension", c.shape(0).dim(-1),
                                       "the size of bias", c.shape(1).dim(0)));
  }
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::Status InferBiasAddGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  c.SetOutput(0, c.dtype(0), Shape{c.shape(0).has_rank() ? c.shape(0).dim(-1) : kUnknownDim});
  return absl::OkStatus();
}

OpBuilder ConvBuilder(std::string_view op, std::string_view name, const Conv2DOptions& options) {
  OpBuilder builder(op, name);
  builder.Attr("strides", std::vector<int64_t>(options.strides.begin(), options.strides.end()))
      .Attr("dilations", std::vector<int64_t>(options.dilations.begin(), options.dilations.end()))
      .Attr("padding", std::string(NameOf(options.padding)))
      .Attr("pads", options.pads);
  return builder;
}

}  // namespace

void RegisterConvOps(OpRegistry& registry) {
  const auto add = [&](std::string name, std::vector<std::string> inputs,
                       std::vector<AttrDef> attrs,
                       std::function<absl::Status(InferContext&)> infer) {
    registry.Add({.name = std::move(name),
                  .inputs = std::move(inputs),
                  .attrs = std::move(attrs),
                  .infer = std::move(infer),
                  .gradient = Gradient::kDefined});
  };
  add("BiasAdd", {"x", "bias"}, {}, InferBiasAdd);
  add("BiasAddGrad", {"dy"}, {}, InferBiasAddGrad);
  add("Conv2D", {"x", "filter"}, ConvAttrs(), InferConv<false>);
  add("DepthwiseConv2D", {"x", "filter"}, ConvAttrs(), InferConv<true>);
  add("Conv2DTranspose", {"x", "filter"}, ConvAttrs(), InferConvTranspose);
  add("Conv2DBackpropInput", {"filter", "dy", "x_shape"}, ConvAttrs(), InferBackprop<false, false>);
  add("Conv2DBackpropFilter", {"x", "dy", "filter_shape"}, ConvAttrs(), InferBackprop<false, true>);
  add("DepthwiseConv2DBackpropInput", {"filter", "dy", "x_shape"}, ConvAttrs(),
      InferBackprop<true, false>);
  add("DepthwiseConv2DBackpropFilter", {"x", "dy", "filter_shape"}, ConvAttrs(),
      InferBackprop<true, true>);
}

WindowAttrs WindowAttrsOf(const Node& node) {
  static const std::vector<int64_t> kOnes = {1, 1};
  static const std::vector<int64_t> kNone;
  const auto ints = [&](std::string_view name,
                        const std::vector<int64_t>& otherwise) -> const std::vector<int64_t>& {
    const AttrValue* value = node.FindAttr(name);
    return value != nullptr ? std::get<std::vector<int64_t>>(*value) : otherwise;
  };
  return {.strides = node.attr<std::vector<int64_t>>("strides"),
          .dilations = ints("dilations", kOnes),
          .padding = node.attr<std::string>("padding"),
          .pads = ints("pads", kNone)};
}

absl::StatusOr<Window> ConvWindow(const Node& node, const Shape& x, const Shape& filter) {
  return ResolveWindow(WindowAttrsOf(node), x.dim(1), x.dim(2), filter.dim(0), filter.dim(1));
}

Output BiasAdd(Input x, Input bias, std::string_view name) {
  return OpBuilder("BiasAdd", name).In(x).In(bias).Build();
}

Output BiasAddGrad(Input dy, std::string_view name) {
  return OpBuilder("BiasAddGrad", name).In(dy).Build();
}

Output Conv2D(Input x, Input filter, const Conv2DOptions& options, std::string_view name) {
  return ConvBuilder("Conv2D", name, options).In(x).In(filter).Build();
}

Output DepthwiseConv2D(Input x, Input filter, const Conv2DOptions& options, std::string_view name) {
  return ConvBuilder("DepthwiseConv2D", name, options).In(x).In(filter).Build();
}

Output Conv2DTranspose(Input x, Input filter, const Conv2DOptions& options, std::string_view name) {
  return ConvBuilder("Conv2DTranspose", name, options).In(x).In(filter).Build();
}

Output Conv2DBackpropInput(Input filter, Input dy, Input x_shape, const Conv2DOptions& options,
                           std::string_view name) {
  return ConvBuilder("Conv2DBackpropInput", name, options).In(filter).In(dy).In(x_shape).Build();
}

Output Conv2DBackpropFilter(Input x, Input dy, Input filter_shape, const Conv2DOptions& options,
                            std::string_view name) {
  return ConvBuilder("Conv2DBackpropFilter", name, options).In(x).In(dy).In(filter_shape).Build();
}

Output DepthwiseConv2DBackpropInput(Input filter, Input dy, Input x_shape,
                                    const Conv2DOptions& options, std::string_view name) {
  return ConvBuilder("DepthwiseConv2DBackpropInput", name, options)
      .In(filter)
      .In(dy)
      .In(x_shape)
      .Build();
}

Output DepthwiseConv2DBackpropFilter(Input x, Input dy, Input filter_shape,
                                     const Conv2DOptions& options, std::string_view name) {
  return ConvBuilder("DepthwiseConv2DBackpropFilter", name, options)
      .In(x)
      .In(dy)
      .In(filter_shape)
      .Build();
}

}  // namespace tutti
