// Kernels that take images with channels in blocks give the same as with row-major ones, and the
// fused kernels the same as the chains that they stand for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

constexpr int kBlock = 8;
const Layout kBlocked("aDbc8d");

Tensor Numbers(const Shape& shape, int seed) {
  Tensor tensor(kFloat32, shape);
  uint32_t state = uint32_t(seed) * 2654435761u + 1;
  for (float& value : tensor.values<float>()) {
    state = state * 1664525u + 1013904223u;
    value = float(state >> 8) / float(1 << 23) - 1;
  }
  return tensor;
}

// The same image with its channels in blocks, or back.
Tensor Reblocked(const Tensor& from, bool to_blocks) {
  const Shape& s = from.shape();
  Tensor to(from.dtype(), s);
  const auto size = int64_t(SizeOf(from.dtype()));
  const auto* source = static_cast<const std::byte*>(from.raw());
  auto* target = static_cast<std::byte*>(to.raw());
  const int64_t pixels = s[1] * s[2], channels = s[3];
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t row_major = (n * pixels + p) * channels + c;
        const int64_t blocked =
            ((n * (channels / kBlock) + c / kBlock) * pixels + p) * kBlock + c % kBlock;
        std::memcpy(target + size * (to_blocks ? blocked : row_major),
                    source + size * (to_blocks ? row_major : blocked), size_t(size));
      }
    }
  }
  return to;
}

struct Call {
  std::string op;
  AttrList attrs;
  std::vector<Tensor> inputs;
};

// The outputs of the op's CPU kernel, or of its reference, with inputs and outputs in these
// layouts.
std::vector<Tensor> ResultsOf(const Call& call, std::string_view kind,
                              std::vector<Layout> input_layouts, Layout output_layout) {
  RegisterCpuKernels();
  Graph graph;
  NodeSpec spec = {.op = call.op, .attrs = call.attrs};
  std::vector<Tensor> inputs = call.inputs;
  std::vector<ValueType> types;
  input_layouts.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool integer = inputs[i].dtype() == kInt64;
    const auto node =
        integer ? AddNode(graph, {.op = "Constant", .attrs = {{"value", inputs[i]}}})
                : AddNode(graph,
                          {.op = "Arg",
                           .attrs = {{"dtype", inputs[i].dtype()}, {"shape", inputs[i].shape()}}});
    spec.inputs.push_back((*node)->output());
    types.push_back({inputs[i].dtype(), inputs[i].shape()});
    if (!input_layouts[i].row_major()) inputs[i] = Reblocked(inputs[i], true);
  }
  const auto added = AddNode(graph, spec);
  EXPECT_TRUE(added.ok()) << added.status();
  const Node& node = **added;
  Device device("/job:local/task:0/cpu:0", 1);
  const KernelDef* def = KernelRegistry::Global().FindExact(call.op, kind, kFloat32);
  EXPECT_NE(def, nullptr);
  const auto kernel = def->make();
  std::vector<ValueType> output_types;
  for (int i = 0; i < node.num_outputs(); ++i) output_types.push_back(node.type(i));
  const std::vector<Layout> output_layouts(output_types.size(), output_layout);
  PrepareContext prepare(node, device, types, output_types, input_layouts, output_layouts);
  const absl::Status prepared = kernel->Prepare(prepare);
  EXPECT_TRUE(prepared.ok()) << prepared;
  std::vector<Tensor> outputs;
  for (const ValueType& type : output_types) outputs.emplace_back(type.dtype, type.shape);
  Tensor scratch(kUInt8, Shape{int64_t(prepare.scratch_bytes())});
  const auto input_pointers = PointersTo(inputs), output_pointers = PointersTo(outputs);
  StepContext step;
  step.device = &device;
  KernelContext context(&node, input_pointers, output_pointers,
                        {static_cast<std::byte*>(scratch.raw()), scratch.bytes()});
  context.step = &step;
  const absl::Status computed = kernel->Compute(context);
  EXPECT_TRUE(computed.ok()) << computed;
  if (!output_layout.row_major()) {
    for (Tensor& output : outputs) output = Reblocked(output, false);
  }
  return outputs;
}

Tensor ResultOf(const Call& call, std::string_view kind = "cpu",
                std::vector<Layout> input_layouts = {}, Layout output_layout = {}) {
  return ResultsOf(call, kind, std::move(input_layouts), std::move(output_layout))[0];
}

void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    ASSERT_NEAR(actual.data<float>()[i], expected.data<float>()[i], 1e-4) << what << " at " << i;
  }
}

Tensor Vector(const Shape& shape) {
  return Tensor::Of<int64_t>({shape.rank()}, std::span<const int64_t>(shape.dims()));
}

const Shape kImage = {2, 6, 7, 16};
const Shape kSmall = {2, 3, 3, 16};
const Shape kFilter = {3, 3, 16, 24};
const Shape kResult = {2, 6, 7, 24};
const AttrList kHalf = {{"padding", std::string("VALID")},
                        {"strides", std::vector<int64_t>{2, 2}},
                        {"window", std::vector<int64_t>{2, 2}}};

TEST(BlockedLayout, ConvolutionsTakeEveryMixture) {
  const Tensor x = Numbers(kImage, 1), filter = Numbers(kFilter, 2), y = Numbers(kResult, 3);
  const Call calls[] = {{"Conv2D", {}, {x, filter}},
                        {"_FusedConv2D", {{"activation", std::string("Relu")}}, {x, filter}},
                        {"Conv2DBackpropInput", {}, {filter, y, Vector(kImage)}},
                        {"Conv2DBackpropFilter", {}, {x, y, Vector(kFilter)}}};
  for (const Call& call : calls) {
    const Tensor expected = ResultOf(call);
    for (int mixture = 1; mixture < 8; ++mixture) {
      std::vector<Layout> layouts(call.inputs.size());
      for (size_t i = 0; i < 2; ++i) {
        const bool image = call.inputs[i].shape() != kFilter;
        if (image && (mixture >> i & 1) != 0) layouts[i] = kBlocked;
      }
      const bool to_image = expected.shape() != kFilter;
      const Layout to = to_image && (mixture & 4) != 0 ? kBlocked : Layout();
      ExpectNear(ResultOf(call, "cpu", layouts, to), expected,
                 fmt::format("{} {}", call.op, mixture));
    }
  }
}

TEST(BlockedLayout, PoolingAndBiasTakeBlocks) {
  const Tensor x = Numbers(kImage, 1), bias = Numbers({16}, 2);
  const Tensor y = ResultOf({"MaxPool", kHalf, {x}}), dy = Numbers(kSmall, 4);
  const Layout row;
  struct Case {
    Call call;
    std::vector<Layout> inputs;
    Layout output;
  };
  const Case cases[] = {
      {{"MaxPool", kHalf, {x}}, {kBlocked}, kBlocked},
      {{"AvgPool", kHalf, {x}}, {kBlocked}, kBlocked},
      {{"MaxPoolGrad", kHalf, {x, y, dy}}, {kBlocked, kBlocked, kBlocked}, kBlocked},
      {{"AvgPoolGrad", kHalf, {dy, Vector(kImage)}}, {kBlocked, row}, kBlocked},
      {{"GlobalAvgPool", {}, {x}}, {kBlocked}, row},
      {{"GlobalAvgPoolGrad", {}, {Numbers({2, 16}, 5), Vector(kImage)}}, {row, row}, kBlocked},
      {{"BiasAdd", {}, {x, bias}}, {kBlocked, row}, kBlocked},
      {{"BiasAddGrad", {}, {x}}, {kBlocked}, row},
      {{"_Reorder", {}, {x}}, {kBlocked}, row},
      {{"_Reorder", {}, {x}}, {row}, kBlocked}};
  for (const Case& c : cases) {
    const Tensor expected = c.call.op == "_Reorder" ? x : ResultOf(c.call, "ref");
    ExpectNear(ResultOf(c.call, "cpu", c.inputs, c.output), expected, c.call.op);
  }
}

TEST(BlockedLayout, PositionsLieAsTheImageDoes) {
  const Tensor x = Numbers(kImage, 1), dy = Numbers(kSmall, 4);
  const auto expected = ResultsOf({"_MaxPoolWithPositions", kHalf, {x}}, "ref", {}, {});
  const auto actual = ResultsOf({"_MaxPoolWithPositions", kHalf, {x}}, "cpu", {kBlocked}, kBlocked);
  EXPECT_EQ(actual[0].ToString(1000), expected[0].ToString(1000));
  EXPECT_EQ(actual[1].ToString(1000), expected[1].ToString(1000));
  AttrList attrs = kHalf;
  SetAttr(attrs, "x_shape", kImage);
  const Call gradient = {"_MaxPoolGradWithPositions", attrs, {dy, expected[1]}};
  EXPECT_EQ(ResultOf(gradient, "cpu", {kBlocked, kBlocked}, kBlocked).ToString(2000),
            ResultOf({"MaxPoolGrad", kHalf, {x, expected[0], dy}}, "ref").ToString(2000));
}

TEST(FusedMatMul, EqualsTheChain) {
  struct Size {
    int64_t m, k, n;
    bool ta, tb;
  };
  // The last two take the detours of Gemm.
  for (const Size& s : {Size{5, 7, 9, false, false},
                        {5, 7, 9, true, true},
                        {3, 4, 8, false, true},
                        {4, 1024, 1024, false, false},
                        {1024, 512, 3, true, false}}) {
    const AttrList attrs = {{"transpose_a", s.ta}, {"transpose_b", s.tb}};
    const Tensor a = Numbers(s.ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const Tensor b = Numbers(s.tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Tensor bias = Numbers({s.n}, 3);
    const Tensor product = ResultOf({"MatMul", attrs, {a, b}}, "ref");
    ExpectNear(ResultOf({"MatMul", attrs, {a, b}}), product, "MatMul");
    const Tensor sum = ResultOf({"BiasAdd", {}, {product, bias}}, "ref");
    ExpectNear(ResultOf({"_FusedMatMul", attrs, {a, b, bias}}), sum, "bias");
    for (const char* activation : {"Relu", "Relu6", "Tanh", "Sigmoid", "Gelu"}) {
      AttrList with = attrs;
      SetAttr(with, "activation", std::string(activation));
      ExpectNear(ResultOf({"_FusedMatMul", with, {a, b, bias}}),
                 ResultOf({activation, {}, {sum}}, "ref"), activation);
    }
  }
}

TEST(MaxPoolCpu, NaNWinsAndTheFirstMaximumTakesTheGradient) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({1, 2, 4, 1}, {1, 3, nan, 2, 3, 3, 5, 1});
  const Tensor dy = Tensor::Of<float>({1, 1, 2, 1}, {10, 20});
  for (const char* kind : {"cpu", "ref"}) {
    const Tensor y = ResultOf({"MaxPool", kHalf, {x}}, kind);
    EXPECT_EQ(y.data<float>()[0], 3) << kind;
    EXPECT_TRUE(std::isnan(y.data<float>()[1])) << kind;
    const Tensor dx = ResultOf({"MaxPoolGrad", kHalf, {x, y, dy}}, kind);
    EXPECT_EQ(dx.ToString(), "float32 [1, 2, 4, 1] {0, 10, 20, 0, 0, 0, 0, 0}") << kind;
  }
}

}  // namespace
}  // namespace tutti
