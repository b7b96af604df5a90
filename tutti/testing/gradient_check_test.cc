#include "tutti/testing/gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti::testing {
namespace {

TEST(CompareTensorsTest, NamesTheWorstElement) {
  const Tensor expected = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(CompareTensors(expected, expected, 0).ok());
  const Tensor off = Tensor::Of<float>({2, 2}, {1.0001f, 2, 3.1f, 4});
  const auto status = CompareTensors(off, expected, 1e-3);
  EXPECT_NE(MessageOf(status).find("element [1, 0]"), std::string_view::npos) << status;
  EXPECT_TRUE(CompareTensors(off, expected, 0.1).ok());
}

TEST(CompareTensorsTest, TypesShapesAndNaN) {
  const Tensor nan = Tensor::Vector<double>({NAN, INFINITY});
  EXPECT_TRUE(CompareTensors(nan, nan, 0).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<double>({NAN, -INFINITY}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<double>({1, INFINITY}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(nan.Reshape({1, 2}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<int32_t>({1}), Tensor::Vector<int32_t>({2}), 10).ok());
}

// Two ops with y = 2x, one with the right gradient, one with half of it.
void AddDoublingOps() {
  [[maybe_unused]] static const bool done = [] {
    RegisterCpuKernels();
    for (const char* name : {"TestDouble", "TestDoubleWrong"}) {
      OpRegistry::Global().Add({.name = name,
                                .inputs = {"x"},
                                .infer =
                                    [](InferContext& c) {
                                      c.SetOutput(0, c.dtype(0), c.shape(0));
                                      return absl::OkStatus();
                                    },
                                .gradient = Gradient::kDefined});
      AddFunctionKernel(KernelRegistry::Global(), name, "ref", [](KernelContext& c) {
        for (int64_t i = 0; i < c.input(0).elements(); ++i) {
          c.output(0).data<double>()[i] = 2 * c.input(0).data<double>()[i];
        }
        return absl::OkStatus();
      });
    }
    GradientRegistry::Global().Add("TestDouble", [](GradientContext& g) {
      const Output arriving = g.gradient();
      g.Set(0, arriving.graph().Add({.op = "TestDouble", .inputs = {arriving}})->output());
    });
    GradientRegistry::Global().Add("TestDoubleWrong",
                                   [](GradientContext& g) { g.Set(0, g.gradient()); });
    return true;
  }();
}

TEST(CheckGradientTest, TellsRightFromWrong) {
  AddDoublingOps();
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{3, 33}}) {
    Graph graph;
    Random random(1);
    const Output x = Placeholder(graph, kFloat64, shape, "x");
    const Output right = graph.Add({.op = "TestDouble", .inputs = {x}})->output();
    const Output wrong = graph.Add({.op = "TestDoubleWrong", .inputs = {right}})->output();
    const Feeds feeds = {{x, RandomTensor(random, kFloat64, shape)}};
    const auto status = CheckGradient(std::span(&right, 1), std::span(&x, 1), feeds, random);
    EXPECT_TRUE(status.ok()) << status;
    const auto error = CheckGradient(std::span(&wrong, 1), std::span(&x, 1), feeds, random);
    EXPECT_EQ(error.ok(), shape.elements() == 0);
    if (!error.ok()) {
      EXPECT_NE(MessageOf(error).find("the gradient of x"), std::string_view::npos) << error;
    }
  }
}

TEST(RandomShapeTest, KeepsItsPromises) {
  Random random(1);
  bool scalar = false, empty = false, odd = false;
  for (int i = 0; i < 500; ++i) {
    const Shape shape = RandomShape(random, {.max_elements = 200});
    EXPECT_LE(shape.elements(), 200);
    scalar = scalar || shape.rank() == 0;
    empty = empty || shape.elements() == 0;
    for (const int64_t dim : shape.dims()) odd = odd || dim == 17;
    EXPECT_GT(RandomShape(random, {.min_rank = 2, .min_dim = 1}).elements(), 0);
  }
  EXPECT_TRUE(scalar && empty && odd);
}

TEST(RandomTensorTest, DistinctAndAwayFromZero) {
  Random random(1);
  const Tensor distinct = RandomDistinct(random, kFloat64, {5, 7});
  std::vector<double> sorted(distinct.values<double>().begin(), distinct.values<double>().end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) EXPECT_GT(sorted[i] - sorted[i - 1], 1.9 / 35);
  const Tensor away = RandomAwayFromZero(random, kFloat32, {100}, 0.25);
  for (const float value : away.values<float>()) EXPECT_GE(std::abs(value), 0.25f);
}

}  // namespace
}  // namespace tutti::testing
