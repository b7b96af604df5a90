#include "tutti/autodiff/dims_of.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/arrange.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

void TransposeGradient(GradientContext& g) {
  const auto& perm = g.node().attr<Ints>("perm");
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[size_t(perm[i])] = int64_t(i);
  g.Set(0, Transpose(g.gradient(), inverse));
}

void ConcatGradient(GradientContext& g) {
  const int axis = int(g.node().attr<int64_t>("axis"));
  const int count = g.node().num_inputs();
  bool known = true;
  Ints sizes;
  std::vector<Output> shapes;
  for (int i = 0; i < count; ++i) {
    const Shape& shape = g.input(i).shape();
    sizes.push_back(shape.has_rank() ? shape.dim(axis) : kUnknownDim);
    known = known && sizes.back() != kUnknownDim;
  }
  if (!known) {
    for (int i = 0; i < count; ++i) shapes.push_back(ShapeOf(g.input(i)));
  }
  const auto parts =
      known ? Split(g.gradient(), axis, sizes) : ConcatGrad(g.gradient(), shapes, axis);
  for (int i = 0; i < count; ++i) g.Set(i, parts[size_t(i)]);
}

// Of ops that take their input apart along `axis`.
std::vector<Output> AllGradients(GradientContext& g) {
  std::vector<Output> gradients;
  for (int i = 0; i < g.node().num_outputs(); ++i) gradients.push_back(g.GradientOrZeros(i));
  return gradients;
}

void SplitGradient(GradientContext& g) {
  g.Set(0, Concat(AllGradients(g), int(g.node().attr<int64_t>("axis"))));
}

void PackGradient(GradientContext& g) {
  // Not by Unpack(), which wants to see the dimension in the gradient's shape.
  const auto parts = OpBuilder("Unpack", "")
                         .In(g.gradient())
                         .Attr("axis", g.node().attr<int64_t>("axis"))
                         .Attr("num", g.node().num_inputs())
                         .BuildAll();
  for (size_t i = 0; i < parts.size(); ++i) g.Set(int(i), parts[i]);
}

void UnpackGradient(GradientContext& g) {
  g.Set(0, Pack(AllGradients(g), int(g.node().attr<int64_t>("axis"))));
}

void SliceGradient(GradientContext& g) {
  g.Set(0, SliceGrad(g.gradient(), DimsOf(g.input(0)), g.input(1)));
}

void SliceGradGradient(GradientContext& g) {
  g.Set(0, Slice(g.gradient(), g.input(2), DimsOf(g.input(0))));
}

StridedSliceOptions OptionsOf(const Node& node) {
  return {node.attr<Ints>("begin"),       node.attr<Ints>("end"),
          node.attr<Ints>("strides"),     node.attr<int64_t>("begin_mask"),
          node.attr<int64_t>("end_mask"), node.attr<int64_t>("shrink_mask")};
}

void StridedSliceGradient(GradientContext& g) {
  g.Set(0, StridedSliceGrad(g.gradient(), DimsOf(g.input(0)), OptionsOf(g.node())));
}

void StridedSliceGradGradient(GradientContext& g) {
  g.Set(0, StridedSlice(g.gradient(), OptionsOf(g.node())));
}

void PadGradient(GradientContext& g) {
  const auto& paddings = g.node().attr<Ints>("paddings");
  Ints before;
  for (size_t i = 0; i < paddings.size(); i += 2) before.push_back(paddings[i]);
  const Shape rank{int64_t(before.size())};
  const Tensor begin = Tensor::Of<int64_t>(rank, std::span<const int64_t>(before));
  g.Set(0, Slice(g.gradient(), Input(begin), DimsOf(g.input(0))));
}

void TileGradient(GradientContext& g) {
  g.Set(0, TileGrad(g.gradient(), DimsOf(g.input(0)), g.node().attr<Ints>("multiples")));
}

void TileGradGradient(GradientContext& g) {
  g.Set(0, Tile(g.gradient(), g.node().attr<Ints>("multiples")));
}

void ReverseGradient(GradientContext& g) {
  g.Set(0, Reverse(g.gradient(), g.node().attr<Ints>("axes")));
}

}  // namespace

void RegisterArrangeGradients(GradientRegistry& registry) {
  registry.Add("Transpose", TransposeGradient);
  registry.Add("Concat", ConcatGradient);
  registry.Add("ConcatGrad", SplitGradient);
  registry.Add("Split", SplitGradient);
  registry.Add("Pack", PackGradient);
  registry.Add("Unpack", UnpackGradient);
  registry.Add("Slice", SliceGradient);
  registry.Add("SliceGrad", SliceGradGradient);
  registry.Add("StridedSlice", StridedSliceGradient);
  registry.Add("StridedSliceGrad", StridedSliceGradGradient);
  registry.Add("Pad", PadGradient);
  registry.Add("Tile", TileGradient);
  registry.Add("TileGrad", TileGradGradient);
  registry.Add("Reverse", ReverseGradient);
}

}  // namespace tutti
