#include "tutti/graph/ops/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/kernels/shape/reduce_dims.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;
using testing::Random;
using testing::RandomTensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ReduceTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  static Tensor Run(KernelRunner& runner, std::string_view op, const Tensor& x,
                    const AttrList& attrs = {}) {
    auto result = runner.RunOp(op, std::span(&x, 1), attrs);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0] : Tensor();
  }
  Tensor Run(std::string_view op, const Tensor& x, const AttrList& attrs = {}) {
    KernelRunner runner(GetParam());
    return Run(runner, op, x, attrs);
  }
};

AttrList Axes(std::vector<int64_t> axes, bool keep_dims = false) {
  return {{"axes", std::move(axes)}, {"keep_dims", keep_dims}};
}

TEST_P(ReduceTest, OverEachAxis) {
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(Run("Sum", x).BitwiseEquals(Tensor::Scalar(21.0f)));
  EXPECT_TRUE(Run("Sum", x, Axes({0})).BitwiseEquals(Tensor::Vector<float>({5, 7, 9})));
  EXPECT_TRUE(Run("Sum", x, Axes({-1})).BitwiseEquals(Tensor::Vector<float>({6, 15})));
  EXPECT_TRUE(Run("Mean", x, Axes({1}, true)).BitwiseEquals(Tensor::Of<float>({2, 1}, {2, 5})));
  EXPECT_TRUE(Run("Prod", x, Axes({1})).BitwiseEquals(Tensor::Vector<float>({6, 120})));
  EXPECT_TRUE(Run("Max", x, Axes({0})).BitwiseEquals(Tensor::Vector<float>({4, 5, 6})));
  EXPECT_TRUE(Run("Min", x, Axes({0, 1}, true)).BitwiseEquals(Tensor::Of<float>({1, 1}, {1})));
}

TEST_P(ReduceTest, OfNothing) {
  const Tensor x = Tensor::Zeros(kFloat32, {2, 0});
  EXPECT_TRUE(Run("Sum", x, Axes({1})).BitwiseEquals(Tensor::Vector<float>({0, 0})));
  EXPECT_TRUE(Run("Prod", x, Axes({1})).BitwiseEquals(Tensor::Vector<float>({1, 1})));
  EXPECT_EQ(Run("Max", x).scalar<float>(), -kInfinity);
  EXPECT_EQ(Run("Min", x).scalar<float>(), kInfinity);
  EXPECT_TRUE(std::isnan(Run("Mean", x).scalar<float>()));
  EXPECT_EQ(Run("LogSumExp", x).scalar<float>(), -kInfinity);
  EXPECT_EQ(Run("Sum", x, Axes({0})).elements(), 0);
}

TEST_P(ReduceTest, NanWinsAndInfinitiesStay) {
  const Tensor x = Tensor::Of<float>({3, 3}, {1, kNan, 3, kInfinity, 5, 6, -kInfinity, 7, 8});
  const Tensor max = Run("Max", x, Axes({1}));
  EXPECT_TRUE(std::isnan(max.values<float>()[0]));
  EXPECT_EQ(max.values<float>()[1], kInfinity);
  EXPECT_TRUE(std::isnan(Run("Min", x).scalar<float>()));
  const Tensor log_sum = Run("LogSumExp", x, Axes({1}));
  EXPECT_TRUE(std::isnan(log_sum.values<float>()[0]));
  EXPECT_EQ(log_sum.values<float>()[1], kInfinity);
  EXPECT_NEAR(log_sum.values<float>()[2], 8.3132617f, 1e-5f);
  // Far beyond the range of exp.
  EXPECT_NEAR(Run("LogSumExp", Tensor::Vector<float>({1000, 1000})).scalar<float>(), 1000.693147f,
              1e-3f);
}

// One element that is not finite among so many, at the start, at the end and in between.
TEST_P(ReduceTest, AllFiniteFindsTheOneThatIsNot) {
  const auto finite = [&](const Tensor& x) { return Run("AllFinite", x).scalar<bool>(); };
  for (const int64_t elements : {0, 1, 7, 64, 4095, 4097, 100003}) {
    Tensor x(kFloat32, {elements});
    for (int64_t i = 0; i < elements; ++i) {
      x.data<float>()[i] = (i % 2 == 0 ? 1 : -1) * std::numeric_limits<float>::max();
    }
    EXPECT_TRUE(finite(x)) << elements;
    if (elements == 0) continue;
    for (const int64_t at : {int64_t{0}, elements / 2, elements - 1}) {
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        const float good = std::exchange(x.data<float>()[at], bad);
        EXPECT_FALSE(finite(x)) << bad << " at " << at << " of " << elements;
        x.data<float>()[at] = good;
      }
    }
  }
  EXPECT_TRUE(finite(Tensor::Vector<double>({1e300, -1e300})));
  EXPECT_FALSE(finite(Tensor::Vector<double>({1, kNan})));
  EXPECT_TRUE(finite(Tensor::Vector<Float16>({Float16(65504.0f)})));
  EXPECT_FALSE(finite(Tensor::Vector<Float16>({Float16(1.0f), Float16(70000.0f)})));
}

TEST_P(ReduceTest, ArgMaxTakesTheFirstAndNan) {
  const AttrList last = {{"axis", int64_t{-1}}, {"dtype", kInt32}};
  const Tensor x = Tensor::Of<float>({3, 3}, {1, 4, 4, kNan, 9, kNan, -1, -2, -3});
  EXPECT_TRUE(Run("ArgMax", x, last).BitwiseEquals(Tensor::Vector<int32_t>({1, 0, 0})));
  EXPECT_TRUE(Run("ArgMin", x, last).BitwiseEquals(Tensor::Vector<int32_t>({0, 0, 2})));
  const AttrList first = {{"axis", int64_t{0}}};
  EXPECT_TRUE(Run("ArgMin", x, first).BitwiseEquals(Tensor::Vector<int64_t>({1, 2, 1})));
}

TEST_P(ReduceTest, Cumsum) {
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto cumsum = [&](int64_t axis, bool exclusive, bool reverse) {
    return Run("Cumsum", x, {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}});
  };
  EXPECT_TRUE(
      cumsum(1, false, false).BitwiseEquals(Tensor::Of<float>({2, 3}, {1, 3, 6, 4, 9, 15})));
  EXPECT_TRUE(cumsum(1, true, true).BitwiseEquals(Tensor::Of<float>({2, 3}, {5, 3, 0, 11, 6, 0})));
  EXPECT_TRUE(cumsum(0, true, false).BitwiseEquals(Tensor::Of<float>({2, 3}, {0, 0, 0, 1, 2, 3})));
  EXPECT_TRUE(cumsum(-2, false, true).BitwiseEquals(Tensor::Of<float>({2, 3}, {5, 7, 9, 4, 5, 6})));
}

TEST_P(ReduceTest, LongSumsStayExact) {
  // Summed one by one in float, a million times 0.1 is off by a hundred.
  Tensor x(kFloat32, {1000, 1000});
  for (float& value : x.values<float>()) value = 0.1f;
  EXPECT_NEAR(Run("Sum", x).scalar<float>(), 100000.0f, 0.2f);
  EXPECT_NEAR(Run("Mean", x).scalar<float>(), 0.1f, 1e-6f);
  const Tensor columns = Run("Sum", x, Axes({0}));
  for (const float sum : columns.values<float>()) ASSERT_NEAR(sum, 100.0f, 1e-3f);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReduceTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

TEST(Reduce, ResultsDoNotDependOnTheCores) {
  RegisterCpuKernels();
  Random random(7);
  for (const Shape& shape : {Shape{70001}, Shape{3, 50000}, Shape{5000, 37}, Shape{9000, 64},
                             Shape{40, 9001}, Shape{4, 300, 130}}) {
    const Tensor x = RandomTensor(random, kFloat32, shape);
    for (int64_t axis = 0; axis < shape.rank(); ++axis) {
      for (const char* op : {"Sum", "Prod"}) {
        KernelRunner one(KernelChoice::kCpuOnly, 1);
        KernelRunner three(KernelChoice::kCpuOnly, 3);
        const auto a = one.RunOp(op, std::span(&x, 1), Axes({axis}));
        const auto b = three.RunOp(op, std::span(&x, 1), Axes({axis}));
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_TRUE((*a)[0].BitwiseEquals((*b)[0])) << op << " " << shape.ToString() << " " << axis;
      }
    }
  }
}

TEST(Reduce, IntegersWrapAround) {
  RegisterCpuKernels();
  KernelRunner runner(KernelChoice::kCpu);
  const Tensor x = Tensor::Vector<int32_t>({std::numeric_limits<int32_t>::max(), 1});
  const auto sum = runner.RunOp("Sum", std::span(&x, 1));
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ((*sum)[0].scalar<int32_t>(), std::numeric_limits<int32_t>::min());
}

TEST(Reduce, RunTimeShapesAreChecked) {
  RegisterCpuKernels();
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, Shape::UnknownRank(), "x");
  const Output dims = Placeholder(graph, kInt64, {kUnknownDim}, "dims");
  const Output y = BroadcastTo(x, dims);
  const Output z = SumToShape(x, dims);
  KernelRunner runner(KernelChoice::kCpu);
  const Tensor three = Tensor::Vector<float>({1, 2, 3});
  EXPECT_TRUE(runner.Run({{x, three}, {dims, Tensor::Vector<int64_t>({2, 3})}}, {y}).ok());
  const auto run = [&](Output fetch, std::initializer_list<int64_t> values) {
    const auto result = runner.Run({{x, three}, {dims, Tensor::Vector<int64_t>(values)}}, {fetch});
    return std::string(MessageOf(result.status()));
  };
  EXPECT_NE(run(y, {2, 4}).find("x is [3] and cannot be broadcast to [2, 4]"), std::string::npos);
  EXPECT_NE(run(z, {2}).find("x is [3] and cannot be summed to [2]"), std::string::npos);
  EXPECT_NE(run(y, {-2, 3}).find("-2"), std::string::npos);
  EXPECT_NE(run(y, {int64_t{1} << 62, 4, 3}).find("2^63"), std::string::npos)
      << run(y, {int64_t{1} << 62, 4, 3});
}

TEST(Reduce, GraphErrorsSayWhatIsWrong) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {2, 3}, "x");
  const Output flags = Placeholder(graph, kBool, {2}, "flags");
  const auto message = [](const auto& build) -> std::string {
    try {
      build();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message([&] {
              Sum(x, {.axes = {2}});
            }).find("axis 2 is out of range for 2 dimensions; expected -2 to 1"),
            std::string::npos);
  EXPECT_NE(message([&] {
              Max(x, {.axes = {1, -1}});
            }).find("axis -1 is given twice"),
            std::string::npos);
  EXPECT_NE(message([&] { Sum(flags); }).find("use All, Any or Cast"), std::string::npos);
  EXPECT_NE(message([&] { All(x); }).find("expected bool"), std::string::npos);
  EXPECT_NE(message([&] { ArgMax(x, 0, kFloat32); }).find("expected int32 or int64"),
            std::string::npos);
  const Output empty = Placeholder(graph, kFloat32, {2, 0});
  EXPECT_NE(message([&] { ArgMax(empty, 1); }).find("axis 1 is empty"), std::string::npos);
  EXPECT_NE(message([&] {
              BroadcastTo(x, Tensor::Vector<int64_t>({3, 2}));
            }).find("x is [2, 3] and cannot be broadcast to [3, 2]"),
            std::string::npos);
  const Output huge = Placeholder(graph, kFloat32, {0, int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_NE(message([&] { Sum(huge, {.axes = {0}}); }).find("the result is too large"),
            std::string::npos);
}

TEST(ReduceDims, MergesNeighboursAndDropsOnes) {
  const int64_t axes[] = {1, 2, -1};
  const ReduceDims dims = ReduceDims::OfAxes(Shape{2, 3, 4, 1, 5, 6}, axes);
  ASSERT_EQ(dims.rank, 4);
  EXPECT_EQ(dims.outputs, 10);
  EXPECT_EQ(dims.elements, 72);
  EXPECT_EQ(dims.dims[1].size, 12);
  EXPECT_TRUE(dims.dims[1].reduced);
  EXPECT_EQ(dims.dims[1].stride, 30);
  DimsCounter kept(dims, false);
  for (int i = 0; i < 6; ++i) kept.Next();
  EXPECT_EQ(kept.offset(), 360 + 6);
  DimsCounter sought(dims, false);
  sought.Seek(6);
  EXPECT_EQ(sought.offset(), kept.offset());
}

}  // namespace
}  // namespace tutti
