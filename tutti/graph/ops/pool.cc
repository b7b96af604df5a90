#include "tutti/graph/ops/pool.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

constexpr int64_t kOnes[] = {1, 1};

std::vector<AttrDef> PoolAttrs() {
  return {{"window", std::vector<int64_t>{2, 2}},
          {"strides", std::vector<int64_t>{2, 2}},
          {"padding", std::string("VALID")}};
}

absl::StatusOr<Shape> PoolOutput(const InferContext& c, const Shape& shape) {
  const Shape x = shape.has_rank() ? shape : Shape::UnknownOfRank(4);
  const auto& window = c.attr<std::vector<int64_t>>("window");
  if (window.size() != 2 || window[0] < 1 || window[1] < 1) {
    return c.Error("window must be two numbers from 1 on, [height, width]; got {} numbers{}",
                   window.size(), window.size() == 2 ? " of which one is below 1" : "");
  }
  const WindowAttrs attrs = {.strides = c.attr<std::vector<int64_t>>("strides"),
                             .dilations = kOnes,
                             .padding = c.attr<std::string>("padding"),
                             .pads = {}};
  TUTTI_ASSIGN_OR_RETURN(const Window resolved,
                         ResolveWindow(attrs, x.dim(1), x.dim(2), window[0], window[1]));
  return Shape{x.dim(0), resolved.height.output, resolved.width.output, x.dim(3)};
}

absl::Status InferPool(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 4));
  TUTTI_ASSIGN_OR_RETURN(const Shape y, PoolOutput(c, c.shape(0)));
  c.SetOutput(0, c.dtype(0), y);
  return absl::OkStatus();
}

absl::Status InferGlobalAvgPool(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 4));
  const Shape& x = c.shape(0);
  c.SetOutput(0, c.dtype(0), x.has_rank() ? Shape{x.dim(0), x.dim(3)} : Shape::UnknownOfRank(2));
  return absl::OkStatus();
}

// MaxPoolGrad and MaxPoolGradGrad: x, y, and the third shaped like y or x.
template <bool kLikeX>
absl::Status InferMaxPoolGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  for (int i = 0; i < 3; ++i) TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 4));
  TUTTI_ASSIGN_OR_RETURN(Shape y, PoolOutput(c, c.shape(0)));
  if (!y.CompatibleWith(c.shape(1))) {
    return c.Error("y is {}, but pooling x gives {}", c.shape(1).ToString(), y.ToString());
  }
  const Shape& third = kLikeX ? c.shape(0) : y;
  if (!third.CompatibleWith(c.shape(2))) {
    return c.Error("{} is {}, but it must be shaped like {}, {}", c.def().inputs[2],
                   c.shape(2).ToString(), kLikeX ? "x" : "y", third.ToString());
  }
  c.SetOutput(0, c.dtype(0), kLikeX ? y : *c.shape(0).MergedWith(Shape::UnknownOfRank(4)));
  return absl::OkStatus();
}

// _MaxPoolWithPositions: a position must fit into a byte.
absl::Status InferMaxPoolWithPositions(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(InferPool(c));
  const auto& window = c.attr<std::vector<int64_t>>("window");
  if (window[0] > kMostPoolPositions / window[1]) {
    return c.Error("the window is [{}, {}]; with positions it can have {} elements at most",
                   window[0], window[1], kMostPoolPositions);
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape y, PoolOutput(c, c.shape(0)));
  c.SetOutput(1, kUInt8, y);
  return absl::OkStatus();
}

absl::Status InferMaxPoolGradWithPositions(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireDType(1, kUInt8));
  const Shape& x = c.attr<Shape>("x_shape");
  if (!x.has_rank() || x.rank() != 4) {
    return c.Error("x_shape must have 4 dimensions; got {}", x.ToString());
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape y, PoolOutput(c, x));
  for (int i = 0; i < 2; ++i) {
    if (y.CompatibleWith(c.shape(i))) continue;
    return c.Error("{} is {}, but pooling {} gives {}", c.def().inputs[size_t(i)],
                   c.shape(i).ToString(), x.ToString(), y.ToString());
  }
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

template <bool kGlobal>
absl::Status InferAvgPoolGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, kGlobal ? 2 : 4));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_ASSIGN_OR_RETURN(Shape x, c.ShapeInput(1));
  if (x.has_rank() && x.rank() != 4) {
    return c.Error("x_shape must name 4 dimensions; got {}", x.ToString());
  }
  if (!x.has_rank()) x = Shape::UnknownOfRank(4);
  Shape y = {x.dim(0), x.dim(3)};
  if constexpr (!kGlobal) {
    TUTTI_ASSIGN_OR_RETURN(y, PoolOutput(c, x));
  }
  if (!y.CompatibleWith(c.shape(0))) {
    return c.Error("dy is {}, but pooling {} gives {}", c.shape(0).ToString(), x.ToString(),
                   y.ToString());
  }
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

OpBuilder PoolBuilder(std::string_view op, std::string_view name, const PoolOptions& options) {
  OpBuilder builder(op, name);
  builder.Attr("window", std::vector<int64_t>(options.window.begin(), options.window.end()))
      .Attr("strides", std::vector<int64_t>(options.strides.begin(), options.strides.end()))
      .Attr("padding", std::string(NameOf(options.padding)));
  return builder;
}

}  // namespace

void RegisterPoolOps(OpRegistry& registry) {
  const auto add = [&](std::string name, std::vector<std::string> inputs,
                       std::vector<AttrDef> attrs,
                       std::function<absl::Status(InferContext&)> infer) {
    registry.Add({.name = std::move(name),
                  .inputs = std::move(inputs),
                  .attrs = std::move(attrs),
                  .infer = std::move(infer),
                  .gradient = Gradient::kDefined});
  };
  add("MaxPool", {"x"}, PoolAttrs(), InferPool);
  add("AvgPool", {"x"}, PoolAttrs(), InferPool);
  add("GlobalAvgPool", {"x"}, {}, InferGlobalAvgPool);
  add("MaxPoolGrad", {"x", "y", "dy"}, PoolAttrs(), InferMaxPoolGrad<false>);
  add("MaxPoolGradGrad", {"x", "y", "v"}, PoolAttrs(), InferMaxPoolGrad<true>);
  add("AvgPoolGrad", {"dy", "x_shape"}, PoolAttrs(), InferAvgPoolGrad<false>);
  add("GlobalAvgPoolGrad", {"dy", "x_shape"}, {}, InferAvgPoolGrad<true>);
  // What KeepPositions makes of MaxPool and MaxPoolGrad: y, and in which element of its window,
  // counted row by row, each maximum was.
  registry.Add({.name = "_MaxPoolWithPositions",
                .inputs = {"x"},
                .attrs = PoolAttrs(),
                .infer = InferMaxPoolWithPositions,
                .internal = true});
  std::vector<AttrDef> with_shape = PoolAttrs();
  with_shape.emplace_back("x_shape", AttrType::kShape);
  registry.Add({.name = "_MaxPoolGradWithPositions",
                .inputs = {"dy", "positions"},
                .attrs = std::move(with_shape),
                .infer = InferMaxPoolGradWithPositions,
                .internal = true});
}

absl::StatusOr<Window> PoolWindow(const Node& node, const Shape& x) {
  const auto& window = node.attr<std::vector<int64_t>>("window");
  return ResolveWindow(WindowAttrsOf(node), x.dim(1), x.dim(2), window[0], window[1]);
}

Output MaxPool(Input x, const PoolOptions& options, std::string_view name) {
  return PoolBuilder("MaxPool", name, options).In(x).Build();
}

Output AvgPool(Input x, const PoolOptions& options, std::string_view name) {
  return PoolBuilder("AvgPool", name, options).In(x).Build();
}

Output GlobalAvgPool(Input x, std::string_view name) {
  return OpBuilder("GlobalAvgPool", name).In(x).Build();
}

Output MaxPoolGrad(Input x, Input y, Input dy, const PoolOptions& options, std::string_view name) {
  return PoolBuilder("MaxPoolGrad", name, options).In(x).In(y).In(dy).Build();
}

Output MaxPoolGradGrad(Input x, Input y, Input v, const PoolOptions& options,
                       std::string_view name) {
  return PoolBuilder("MaxPoolGradGrad", name, options).In(x).In(y).In(v).Build();
}

Output AvgPoolGrad(Input dy, Input x_shape, const PoolOptions& options, std::string_view name) {
  return PoolBuilder("AvgPoolGrad", name, options).In(dy).In(x_shape).Build();
}

Output GlobalAvgPoolGrad(Input dy, Input x_shape, std::string_view name) {
  return OpBuilder("GlobalAvgPoolGrad", name).In(dy).In(x_shape).Build();
}

}  // namespace tutti
