// Gradients of reductions: a result's gradient goes back to the elements it was made from, so most
// of them stretch it over the reduced axes and multiply by something.
#include <algorithm>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/base/status.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

const std::vector<int64_t>& AxesOf(const Node& node) {
  return node.attr<std::vector<int64_t>>("axes");
}

// In what order ExpandDims brings back the axes: from the first to the last by position.
std::vector<int64_t> OrderedAxes(const Node& node) {
  const Shape& shape = node.input(0).shape();
  std::vector<int64_t> axes = AxesOf(node);
  if (shape.has_rank()) {
    for (int64_t& axis : axes) axis += axis < 0 ? shape.rank() : 0;
    std::sort(axes.begin(), axes.end());
    return axes;
  }
  // Without a rank, negative axes are brought back from the end, the last one first.
  std::sort(axes.begin(), axes.end());
  if (!axes.empty() && axes.front() < 0) {
    if (axes.back() >= 0) {
      ThrowInvalidArgument(
          fmt::format("Gradients: {} has axes counted from both ends, and the rank of its input is "
                      "unknown; give the input a rank, or count all axes from one end",
                      node.Describe()));
    }
    std::reverse(axes.begin(), axes.end());
  }
  return axes;
}

// `y`, of the result's shape, made fit to broadcast against the input: reduced axes come back as
// dimensions of 1, unless broadcasting adds them anyway.
Output WithReducedAxes(const Node& node, Output y) {
  if (node.attr<bool>("keep_dims") || AxesOf(node).empty()) return y;
  const std::vector<int64_t> axes = OrderedAxes(node);
  bool leading = true;
  for (size_t i = 0; i < axes.size(); ++i) leading = leading && axes[i] == int64_t(i);
  if (leading) return y;
  for (const int64_t axis : axes) y = ExpandDims(y, int(axis));
  return y;
}

void SumGradient(GradientContext& g) {
  g.Set(0, BroadcastLike(WithReducedAxes(g.node(), g.gradient()), g.input(0)));
}

// How many elements of the input one result is made from; -1 when the graph does not tell.
int64_t KnownCount(const Node& node) {
  const Shape& shape = node.input(0).shape();
  if (AxesOf(node).empty()) return shape.elements();
  if (!shape.has_rank()) return -1;
  std::vector<int64_t> dims;
  for (const int64_t axis : AxesOf(node)) {
    if (shape.dim(int(axis)) == kUnknownDim) return -1;
    dims.push_back(shape.dim(int(axis)));
  }
  return ProductOf(dims);
}

void MeanGradient(GradientContext& g) {
  const int64_t count = KnownCount(g.node());
  const DType dtype = g.input(0).dtype();
  Output share;
  if (count >= 0) {
    share = Mul(g.gradient(), 1.0 / double(std::max<int64_t>(count, 1)));
  } else {
    const Output results = Cast(Size(g.output(0)), dtype);
    share = Mul(g.gradient(), Div(results, Cast(Size(g.input(0)), dtype)));
  }
  g.Set(0, BroadcastLike(WithReducedAxes(g.node(), share), g.input(0)));
}

void ProdGradient(GradientContext& g) {
  const Output others = ExclusiveProd(g.input(0), AxesOf(g.node()));
  g.Set(0, Mul(others, WithReducedAxes(g.node(), g.gradient())));
}

void ExclusiveProdGradient(GradientContext& g) {
  g.Set(0, OpBuilder("ExclusiveProdGrad", "")
               .In(g.input(0))
               .In(g.gradient())
               .Attr("axes", AxesOf(g.node()))
               .Build());
}

// Elements that tie share equally.
void ExtremeGradient(GradientContext& g) {
  const Node& node = g.node();
  const Output hits =
      Cast(Equal(g.input(0), WithReducedAxes(node, g.output(0))), g.input(0).dtype());
  const Output count = Sum(hits, {.axes = AxesOf(node), .keep_dims = node.attr<bool>("keep_dims")});
  g.Set(0, Mul(hits, WithReducedAxes(node, Div(g.gradient(), count))));
}

// d log(sum(exp(x))) / dx = exp(x) / sum(exp(x)).
void LogSumExpGradient(GradientContext& g) {
  const Output shares = Exp(Sub(g.input(0), WithReducedAxes(g.node(), g.output(0))));
  g.Set(0, Mul(shares, WithReducedAxes(g.node(), g.gradient())));
}

void CumsumGradient(GradientContext& g) {
  const Node& node = g.node();
  g.Set(0, Cumsum(g.gradient(), node.attr<int64_t>("axis"),
                  {.exclusive = node.attr<bool>("exclusive"),
                   .reverse = !node.attr<bool>("reverse")}));
}

void BroadcastToGradient(GradientContext& g) { g.Set(0, SumToShapeOf(g.gradient(), g.input(0))); }
void SumToShapeGradient(GradientContext& g) { g.Set(0, BroadcastLike(g.gradient(), g.input(0))); }

}  // namespace

void RegisterReduceGradients(GradientRegistry& registry) {
  registry.Add("Sum", SumGradient);
  registry.Add("Mean", MeanGradient);
  registry.Add("Prod", ProdGradient);
  registry.Add("ExclusiveProd", ExclusiveProdGradient);
  registry.Add("Max", ExtremeGradient);
  registry.Add("Min", ExtremeGradient);
  registry.Add("LogSumExp", LogSumExpGradient);
  registry.Add("Cumsum", CumsumGradient);
  registry.Add("BroadcastTo", BroadcastToGradient);
  registry.Add("SumToShape", SumToShapeGradient);
}

}  // namespace tutti
