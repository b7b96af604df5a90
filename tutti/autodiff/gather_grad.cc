#include "tutti/autodiff/dims_of.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

// `gradient`, [indices..., slice...], as [count, slice...] for the slices of params.
Output AsRows(Output gradient, Output params, Output indices) {
  const Shape& shape = params.shape();
  const int64_t count = indices.shape().elements();
  std::vector<int64_t> dims{count};
  bool known = shape.has_rank();
  for (int i = 1; i < shape.rank(); ++i) {
    dims.push_back(shape.dim(i));
    // A count that is left open cannot be told from rows of no elements.
    known = known && (shape.dim(i) > 0 || (shape.dim(i) == 0 && count >= 0));
  }
  if (known) return Reshape(gradient, Shape(std::span<const int64_t>(dims)));
  const Output rows = ExpandDims(Size(indices), 0);
  return Reshape(gradient, Concat({rows, Slice(ShapeOf(params), {1}, {-1})}, 0));
}

void GatherGradient(GradientContext& g) {
  const Output params = g.input(0);
  const Output indices = g.input(1);
  const int64_t axis = g.node().attr<int64_t>("axis");
  if (axis == 0 || (params.shape().has_rank() && axis == -params.shape().rank())) {
    if (indices.shape().rank() == 1) return g.SetRows(0, indices, g.gradient());
    return g.SetRows(0, Reshape(indices, {-1}), AsRows(g.gradient(), params, indices));
  }
  g.Set(0, GatherGrad(g.gradient(), indices, DimsOf(params), int(axis)));
}

void GatherGradGradient(GradientContext& g) {
  g.Set(0, Gather(g.gradient(), g.input(1), int(g.node().attr<int64_t>("axis"))));
}

void GatherNdGradient(GradientContext& g) {
  g.Set(0, ScatterNd(g.input(1), g.gradient(), DimsOf(g.input(0))));
}

void ScatterNdGradient(GradientContext& g) { g.Set(1, GatherNd(g.gradient(), g.input(0))); }

void GatherLastGradient(GradientContext& g) {
  g.Set(0, GatherLastGrad(g.gradient(), g.input(1), DimsOf(g.input(0))));
}

void GatherLastGradGradient(GradientContext& g) { g.Set(0, GatherLast(g.gradient(), g.input(1))); }

void TopKGradient(GradientContext& g) {
  if (!g.gradient(0)) return;
  g.Set(0, GatherLastGrad(g.gradient(0), g.output(1), DimsOf(g.input(0))));
}

void UnsortedSegmentSumGradient(GradientContext& g) { g.Set(0, Gather(g.gradient(), g.input(1))); }

// The rows go back to where they came from: their numbers are partitioned just as they were.
void DynamicPartitionGradient(GradientContext& g) {
  const Output partitions = g.input(1);
  std::vector<Output> gradients;
  for (int i = 0; i < g.node().num_outputs(); ++i) gradients.push_back(g.GradientOrZeros(i));
  const Output numbers =
      Reshape(Range(int64_t{0}, Size(partitions), int64_t{1}), DimsOf(partitions));
  const auto places = DynamicPartition(numbers, partitions, g.node().num_outputs());
  g.Set(0, Reshape(DynamicStitch(places, gradients), DimsOf(g.input(0))));
}

void DynamicStitchGradient(GradientContext& g) {
  const int count = g.node().num_inputs() / 2;
  const auto& inputs = g.node().inputs();
  const auto gradients =
      DynamicStitchGrad(g.gradient(), std::span<const Output>(inputs).first(size_t(count)));
  for (int i = 0; i < count; ++i) g.Set(count + i, gradients[size_t(i)]);
}

void DynamicStitchGradGradient(GradientContext& g) {
  std::vector<Output> gradients;
  for (int i = 0; i < g.node().num_outputs(); ++i) gradients.push_back(g.GradientOrZeros(i));
  g.Set(0, DynamicStitch(std::span<const Output>(g.node().inputs()).subspan(1), gradients));
}

}  // namespace

void RegisterGatherGradients(GradientRegistry& registry) {
  registry.Add("Gather", GatherGradient);
  registry.Add("GatherGrad", GatherGradGradient);
  registry.Add("GatherNd", GatherNdGradient);
  registry.Add("ScatterNd", ScatterNdGradient);
  registry.Add("GatherLast", GatherLastGradient);
  registry.Add("GatherLastGrad", GatherLastGradGradient);
  registry.Add("TopK", TopKGradient);
  registry.Add("UnsortedSegmentSum", UnsortedSegmentSumGradient);
  registry.Add("DynamicPartition", DynamicPartitionGradient);
  registry.Add("DynamicStitch", DynamicStitchGradient);
  registry.Add("DynamicStitchGrad", DynamicStitchGradGradient);
}

}  // namespace tutti
