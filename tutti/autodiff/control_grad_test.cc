// Values and gradients of control flow, on the reference kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/error.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/gradient_check.h"

namespace tutti {
namespace {

using testing::CheckGradient;
using testing::Feeds;
using testing::KernelChoice;
using testing::KernelRunner;
using testing::Random;

class ControlGradTest : public ::testing::Test {
 protected:
  void SetUp() override { RegisterCpuKernels(); }

  Output Real(const Shape& shape, std::string_view name) {
    const Output x = Placeholder(graph_, kFloat64, shape, name);
    const Shape concrete = shape.IsFullyKnown() ? shape : Shape{4};
    feeds_[x] = testing::RandomTensor(random_, kFloat64, concrete, 0.3, 1.2);
    return x;
  }
  Output Bool(bool value) {
    const Output p = Placeholder(graph_, kBool, Shape{});
    feeds_[p] = Tensor::Scalar(value);
    return p;
  }
  Output Integer(int64_t value) {
    const Output i = Placeholder(graph_, kInt64, Shape{});
    feeds_[i] = Tensor::Scalar(value);
    return i;
  }

  std::vector<Tensor> Values(const std::vector<Output>& outputs) {
    KernelRunner runner(KernelChoice::kReference);
    return ValueOrThrow(runner.Run(feeds_, outputs));
  }
  void ExpectRightGradient(const std::vector<Output>& ys, const std::vector<Output>& xs) {
    const absl::Status status = CheckGradient(ys, xs, feeds_, random_);
    EXPECT_TRUE(status.ok()) << status;
  }

  Graph graph_;
  Feeds feeds_;
  Random random_{7};
};

// x^n times w^n elementwise, by a loop; also returns the count.
std::vector<Output> PowerLoop(Output x, Output w, Output n) {
  const Output zero = ZerosLike(n);
  return While(
      {zero, x}, [&](std::span<const Output> v) { return Less(v[0], n); },
      [&](std::span<const Output> v) {
        return std::vector{Add(v[0], 1), Mul(Mul(v[1], v[1]), w)};
      });
}

TEST_F(ControlGradTest, IfRunsOneBranch) {
  const Output x = Real({3}, "x");
  for (const bool value : {true, false}) {
    const Output p = Bool(value);
    const Output y = If(
        p, [&] { return std::vector{Mul(x, 2.0)}; },
        [&] { return std::vector{CheckNumerics(Div(x, 0.0))}; })[0];
    if (value) {
      EXPECT_DOUBLE_EQ(Values({y})[0].data<double>()[1], 2 * feeds_[x].data<double>()[1]);
    } else {
      EXPECT_THROW(Values({y}), Error);
    }
  }
}

TEST_F(ControlGradTest, IfGradientOfBothBranches) {
  for (const bool value : {true, false}) {
    const Output p = Bool(value);
    const Output x = Real({3}, "");
    const Output w = Real({kUnknownDim}, "");
    feeds_[w] = testing::RandomTensor(random_, kFloat64, {3}, 0.5, 1);
    // x alone in one branch, both in the other, one result returned as it is.
    const auto ys = If(
        p,
        [&] {
          return std::vector{Mul(x, x), x};
        },
        [&] {
          return std::vector{Mul(Exp(x), w), Sin(w)};
        });
    ExpectRightGradient(ys, {x, w});
  }
}

TEST_F(ControlGradTest, WhileCounts) {
  const Output x = Real({3}, "x");
  const Output w = Real({3}, "w");
  for (const int64_t n : {0, 1, 3}) {
    const auto end = PowerLoop(x, w, Integer(n));
    const Output count = end[0].node->output(4);
    const Output record = end[0].node->output(3);
    const auto values = Values({end[0], end[1], record, count});
    EXPECT_EQ(values[0].scalar<int64_t>(), n);
    EXPECT_EQ(values[3].scalar<int64_t>(), n);
    EXPECT_EQ(values[2].shape(), (Shape{n, 3}));
    if (n > 0) {
      EXPECT_TRUE(values[2].Rows(0, 1).Reshape({3}).BitwiseEquals(feeds_[x]));
    } else {
      EXPECT_TRUE(values[1].BitwiseEquals(feeds_[x]));
    }
  }
}

TEST_F(ControlGradTest, WhileGradient) {
  for (const int64_t n : {0, 1, 3}) {
    const Output x = Real({kUnknownDim}, "");
    const Output w = Real({kUnknownDim}, "");
    const auto end = PowerLoop(x, w, Integer(n));
    ExpectRightGradient({end[1]}, {x, w});
  }
}

TEST_F(ControlGradTest, WhileStopsAtItsLimit) {
  const Output x = Real({}, "x");
  const Output p = Bool(true);
  const Output y = While(
      {x}, [&](std::span<const Output>) { return p; },
      [](std::span<const Output> v) { return std::vector{Mul(v[0], v[0])}; },
      {.max_iterations = 2})[0];
  const double value = feeds_[x].scalar<double>();
  EXPECT_NEAR(Values({y})[0].scalar<double>(), value * value * value * value, 1e-12);
  ExpectRightGradient({y}, {x});
}

TEST_F(ControlGradTest, LoopVariablesThatDependOnEachOther) {
  const Output a = Real({2}, "a");
  const Output b = Real({2}, "b");
  const Output n = Integer(4);
  const auto end = While(
      {a, ZerosLike(n), b}, [&](std::span<const Output> v) { return Less(v[1], n); },
      [&](std::span<const Output> v) {
        return std::vector{v[2], Add(v[1], 1), Add(Sin(v[0]), Mul(v[2], b))};
      });
  ExpectRightGradient({end[0], end[2]}, {a, b});
  ExpectRightGradient({end[2]}, {b});
}

TEST_F(ControlGradTest, WhileInIfAndIfInWhile) {
  const Output x = Real({2}, "x");
  const Output w = Real({2}, "w");
  const Output n = Integer(3);
  for (const bool value : {true, false}) {
    const Output y = If(
        Bool(value), [&] { return std::vector{PowerLoop(x, w, n)[1]}; },
        [&] { return std::vector{Mul(x, w)}; })[0];
    ExpectRightGradient({y}, {x, w});
  }
  // Even iterations multiply, odd ones take the sine.
  const auto end = While(
      {ZerosLike(n), x}, [&](std::span<const Output> v) { return Less(v[0], n); },
      [&](std::span<const Output> v) {
        const Output even = Equal(Mod(v[0], 2), 0);
        const Output next = If(
            even, [&] { return std::vector{Mul(v[1], w)}; },
            [&] { return std::vector{Sin(v[1])}; })[0];
        return std::vector{Add(v[0], 1), next};
      });
  ExpectRightGradient({end[1]}, {x, w});
}

TEST_F(ControlGradTest, WhileInWhile) {
  const Output x = Real({2}, "x");
  const Output w = Real({2}, "w");
  const Output n = Integer(2);
  const auto end = While(
      {ZerosLike(n), x}, [&](std::span<const Output> v) { return Less(v[0], n); },
      [&](std::span<const Output> v) {
        return std::vector{Add(v[0], 1), PowerLoop(v[1], Sin(w), v[0])[1]};
      });
  ExpectRightGradient({end[1]}, {x, w});
}

TEST_F(ControlGradTest, SecondDerivatives) {
  const Output x = Real({}, "x");
  const Output w = Real({}, "w");
  const Output p = Bool(true);
  const Output through_if = If(
      p, [&] { return std::vector{Mul(Mul(x, x), w)}; }, [&] { return std::vector{x}; })[0];
  ExpectRightGradient(Gradients(through_if, {x, w}), {x, w});
  const Output through_loop = PowerLoop(x, w, Integer(2))[1];
  ExpectRightGradient(Gradients(through_loop, {x, w}), {x, w});
}

TEST_F(ControlGradTest, PrintAndCheckNumericsPassGradients) {
  const Output x = Real({3}, "x");
  ExpectRightGradient({CheckNumerics(Mul(x, x), "square")}, {x});
  // What a gradient computes again is not printed again.
  const Output y = If(
      Bool(true), [&] { return std::vector{Print(Mul(x, x), "square")}; },
      [&] { return std::vector{x}; })[0];
  ::testing::internal::CaptureStderr();
  Values({y});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("square: float64 [3]"));
  const auto gradient = Gradients(y, {x});
  feeds_[y] = feeds_[x];
  ::testing::internal::CaptureStderr();
  Values(gradient);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ControlGradTest, ChecksFail) {
  const Output x = Placeholder(graph_, kFloat32, {2, 2}, "x");
  feeds_[x] = Tensor::Of<float>({2, 2}, {1, 2, NAN, INFINITY});
  try {
    Values({CheckNumerics(x, "weights")});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("weights: element [1, 0] of float32 [2, 2] is NaN"));
  }
  const Node* assertion = Assert(Less(x, 2.0f), std::vector{x}, "too large");
  KernelRunner runner(KernelChoice::kReference);
  const auto status = runner.Run(feeds_, {}, std::vector{assertion}).status();
  EXPECT_THAT(MessageOf(status),
              ::testing::HasSubstr("too large: the condition is false at [0, 1]; "
                                   "x = float32 [2, 2] {1, 2, "));
}

}  // namespace
}  // namespace tutti
