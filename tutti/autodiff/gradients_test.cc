#include "tutti/autodiff/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/error_of.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KernelChoice;
using testing::KernelRunner;
using ::tutti::testing::ErrorOf;

class GradientsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  Output Of(Graph& graph, const Shape& shape, const char* name, DType dtype = kFloat32) {
    return Placeholder(graph, dtype, shape, name);
  }
  std::vector<float> ValuesOf(Output y, const testing::Feeds& feeds) {
    KernelRunner runner(KernelChoice::kReference);
    const Tensor value = ValueOrThrow(runner.Run(feeds, std::span(&y, 1))).front();
    return {value.values<float>().begin(), value.values<float>().end()};
  }

  Graph graph_;
  Output x_ = Of(graph_, {3}, "x");
  testing::Feeds feeds_ = {{x_, Tensor::Vector<float>({1, 2, 5})}};
};

TEST_F(GradientsTest, EndsAtStopGradient) {
  const Output through = Gradients(Mul(x_, x_), {x_})[0];
  EXPECT_THAT(ValuesOf(through, feeds_), ElementsAre(2, 4, 10));
  const Output half = Gradients(Mul(x_, StopGradient(x_)), {x_})[0];
  EXPECT_THAT(ValuesOf(half, feeds_), ElementsAre(1, 2, 5));
  const Output stopped = StopGradient(Mul(x_, x_));
  const Output none = Gradients(Mul(stopped, 3.0f), {x_})[0];
  EXPECT_THAT(ValuesOf(none, feeds_), ElementsAre(0, 0, 0));
  const Output product = Mul(stopped, 3.0f);
  EXPECT_TRUE(SparseGradients(std::span(&product, 1), std::span(&x_, 1))[0].empty());
}

TEST_F(GradientsTest, NamesAnOpThatHasNone) {
  const Output start = Of(graph_, {}, "start");
  const Output count = Range(start, 5.0f, 1.0f, "count");
  EXPECT_THAT(ErrorOf([&] { Gradients(Sum(count), {start}); }),
              HasSubstr("lies on the path but the op Range has no gradient; use StopGradient "
                        "before it if none is wanted"));
  EXPECT_THAT(ErrorOf([&] { Gradients(Sum(count), {start}); }),
              HasSubstr("Gradients: Range \"count\" (gradients_test.cc:"));
  // Not on the path: beside it, or behind a StopGradient.
  EXPECT_EQ(ErrorOf([&] { Gradients(Add(Sum(count), Sum(x_)), {x_}); }), "no error");
  const Output other = Range(StopGradient(start), 5.0f, 1.0f);
  EXPECT_EQ(ErrorOf([&] { Gradients(Sum(other), {start}); }), "no error");
}

TEST_F(GradientsTest, RefusesIntegers) {
  const Output i = Of(graph_, {2}, "i", kInt32);
  const std::string error = ErrorOf([&] { Gradients(i, {i}); });
  EXPECT_THAT(error, HasSubstr("\"i\""));
  EXPECT_THAT(error, HasSubstr("is int32; only floating-point values have gradients"));
}

TEST_F(GradientsTest, RefusesForeignGraphs) {
  Graph other;
  const Output foreign = Of(other, {3}, "foreign");
  const Output y = Mul(x_, 2.0f, "y");
  const auto gradients = [](std::vector<Output> ys, std::vector<Output> xs,
                            std::vector<Output> initial = {}) {
    return ErrorOf([&] { Gradients(ys, xs, {.initial = initial}); });
  };
  EXPECT_THAT(gradients({y}, {foreign}), HasSubstr("Placeholder \"foreign\""));
  EXPECT_THAT(gradients({y}, {foreign}), HasSubstr("belongs to another graph than the ys"));
  EXPECT_THAT(gradients({y, foreign}, {x_}), HasSubstr("belong to different graphs"));
  EXPECT_THAT(gradients({y}, {x_}, {foreign}), HasSubstr("initial gradient 0, Placeholder "
                                                         "\"foreign\""));
  EXPECT_THAT(gradients({y}, {x_}, {foreign}), HasSubstr("belongs to another graph than its y"));
}

TEST_F(GradientsTest, ChecksWhatArrivesAtTheYs) {
  const Output y = Mul(x_, 2.0f, "y");
  const auto gradients = [&](std::vector<Output> initial) {
    return ErrorOf([&] { Gradients(std::span(&y, 1), std::span(&x_, 1), {.initial = initial}); });
  };
  EXPECT_THAT(gradients({Of(graph_, {}, "scalar")}),
              HasSubstr("initial gradient 0, Placeholder \"scalar\""));
  EXPECT_THAT(gradients({Of(graph_, {2, 3}, "rows")}),
              HasSubstr("is float32 [2, 3]; expected float32 [3], as its y Mul \"y\""));
  EXPECT_THAT(gradients({Of(graph_, {3}, "wide", kFloat64)}),
              HasSubstr("is float64 [3]; expected float32 [3], as its y Mul \"y\""));
  EXPECT_THAT(gradients({Output{}}), HasSubstr("initial gradient 0 is empty"));
  EXPECT_THAT(gradients({Output{x_.node, 1}}), HasSubstr("initial gradient 0 is output 1 of"));
  EXPECT_THAT(gradients({x_, x_}), HasSubstr("2 initial gradients given for 1 ys"));
  EXPECT_EQ(gradients({Of(graph_, {-1}, "some")}), "no error");
  const Output w = Of(graph_, {3}, "w");
  const Output g = Gradients(std::span(&y, 1), std::span(&x_, 1), {.initial = {w}})[0];
  feeds_[w] = Tensor::Vector<float>({1, 10, 100});
  EXPECT_THAT(ValuesOf(g, feeds_), ElementsAre(2, 20, 200));
}

}  // namespace
}  // namespace tutti
