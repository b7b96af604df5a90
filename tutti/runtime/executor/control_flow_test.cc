// If and While through a Session: plans, lanes, cancellation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/gradient_check.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Outputs = std::vector<Output>;
using Variables = std::span<const Output>;

class ControlFlowTest : public ::testing::Test {
 protected:
  void SetUp() override { RegisterCpuKernels(); }

  // sum of 0 .. n-1, the loop's counter, and x multiplied by w n times.
  Outputs Loop(Output n, Output x, Output w) {
    const Output zero = ZerosLike(n);
    return While(
        {zero, zero, x}, [&](Variables v) { return Less(v[0], n); },
        [&](Variables v) {
          return Outputs{Add(v[0], 1), Add(v[1], v[0]), Mul(v[2], w)};
        });
  }

  Graph graph_;
  Output n_ = Placeholder(graph_, kInt64, Shape{}, "n");
  Output p_ = Placeholder(graph_, kBool, Shape{}, "p");
  Output x_ = Placeholder(graph_, kFloat32, Shape{kUnknownDim}, "x");
  Output w_ = Placeholder(graph_, kFloat32, Shape{}, "w");
  Tensor two_ = Tensor::Vector<float>({1, 2});
  Tensor three_ = Tensor::Vector<float>({1, 2, 3});
};

TEST_F(ControlFlowTest, IfRunsOneBranchForEachShape) {
  const Output y = If(
      p_, [&] { return Outputs{Mul(x_, 2.0f)}; },
      [&] { return Outputs{CheckNumerics(Div(x_, 0.0f), "unlucky")}; })[0];
  Session session(graph_);
  for (const Tensor& x : {two_, three_, two_}) {
    const Tensor value = session.Run({{p_, Tensor::Scalar(true)}, {x_, x}}, y);
    ASSERT_EQ(value.shape(), x.shape());
    EXPECT_EQ(value.data<float>()[1], 4);
  }
  try {
    session.Run({{p_, Tensor::Scalar(false)}, {x_, two_}}, y);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("CheckNumerics \"If/else_branch/CheckNumerics\""));
    EXPECT_THAT(error.what(), HasSubstr("unlucky: element [0] of float32 [2] is Inf"));
  }
  EXPECT_NO_THROW(session.Run({{p_, Tensor::Scalar(true)}, {x_, two_}}, y));
}

TEST_F(ControlFlowTest, WhileCounts) {
  const Outputs end = Loop(n_, x_, w_);
  const Output record = end[0].node->output(5);
  Session session(graph_);
  for (const int64_t n : {0, 1, 5, 1000}) {
    const auto values =
        session.Run({{n_, Tensor::Scalar(n)}, {x_, two_}, {w_, Tensor::Scalar(-1.0f)}},
                    {end[0], end[1], end[2], record});
    EXPECT_EQ(values[0].scalar<int64_t>(), n);
    EXPECT_EQ(values[1].scalar<int64_t>(), n * (n - 1) / 2);
    EXPECT_EQ(values[2].data<float>()[1], n % 2 == 0 ? 2 : -2);
    ASSERT_EQ(values[3].shape(), (Shape{n, 2}));
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(values[3].data<float>()[2 * i + 1], i % 2 == 0 ? 2 : -2);
    }
  }
}

TEST_F(ControlFlowTest, GradientsEqualTheReference) {
  const Output y = If(
      p_, [&] { return Outputs{Loop(n_, x_, w_)[2]}; }, [&] { return Outputs{Mul(x_, x_)}; })[0];
  const Outputs gradients = Gradients(y, {x_, w_});
  Session session(graph_);
  for (const bool p : {true, false}) {
    const Tensor n = Tensor::Scalar<int64_t>(3);
    const Tensor w = Tensor::Scalar(0.5f);
    const auto values = session.Run({{p_, Tensor::Scalar(p)}, {n_, n}, {x_, three_}, {w_, w}},
                                    {gradients[0], gradients[1]});
    testing::KernelRunner runner(testing::KernelChoice::kReference);
    const auto expected =
        runner.Run({{p_, Tensor::Scalar(p)}, {n_, n}, {x_, three_}, {w_, w}}, gradients);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(testing::CompareTensors(values[i], (*expected)[i], 1e-6).ok())
          << values[i].ToString() << (*expected)[i].ToString();
    }
  }
}

TEST_F(ControlFlowTest, NestedLoopsManyIterations) {
  // The inner loop counts to the outer counter: 0 + 1 + ... + n-1.
  const Output zero = ZerosLike(n_);
  const Output total = While(
      {zero, zero}, [&](Variables v) { return Less(v[0], n_); },
      [&](Variables v) {
        const Output inner = While(
            {zero, v[1]}, [&](Variables u) { return Less(u[0], v[0]); },
            [&](Variables u) {
              return Outputs{Add(u[0], 1), Add(u[1], 1)};
            })[1];
        return Outputs{Add(v[0], 1), inner};
      })[1];
  Session session(graph_);
  EXPECT_EQ(session.Run({{n_, Tensor::Scalar<int64_t>(200)}}, total).scalar<int64_t>(), 19900);
}

TEST_F(ControlFlowTest, EndlessLoopMeetsItsDeadline) {
  const Output endless = While(
      {x_}, [&](Variables) { return p_; }, [&](Variables v) { return Outputs{v[0]}; })[0];
  const Output busy = While(
      {x_}, [&](Variables) { return p_; }, [&](Variables v) { return Outputs{Mul(v[0], w_)}; })[0];
  Session session(graph_);
  for (const Output& loop : {endless, busy}) {
    try {
      session.Run({{p_, Tensor::Scalar(true)}, {x_, two_}, {w_, Tensor::Scalar(1.0f)}}, loop,
                  {.timeout = std::chrono::milliseconds(50)});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    }
    EXPECT_EQ(
        session.Run({{p_, Tensor::Scalar(false)}, {x_, two_}, {w_, Tensor::Scalar(1.0f)}}, loop)
            .data<float>()[1],
        2);
  }
}

TEST_F(ControlFlowTest, GrowingVariableAndItsErrors) {
  const auto grow = [&](const WhileOptions& options) {
    return While(
        {x_}, [&](Variables v) { return Less(Size(v[0]), n_); },
        [&](Variables v) {
          return Outputs{Concat(Outputs{v[0], Constant(graph_, Tensor::Vector<float>({7}))}, 0)};
        },
        options)[0];
  };
  const Output open = grow({.shapes = {Shape{kUnknownDim}}});
  Session session(graph_);
  const Tensor value = session.Run({{n_, Tensor::Scalar<int64_t>(50)}, {x_, two_}}, open);
  EXPECT_EQ(value.shape(), Shape{50});
  // Kept values of different shapes cannot be stacked.
  try {
    session.Run({{n_, Tensor::Scalar<int64_t>(8)}, {x_, two_}}, open.node->output(1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("changes its shape from [2] to [3]"));
  }
}

TEST_F(ControlFlowTest, UpdatesVariablesInside) {
  const Output variable = Variable(
      graph_, Initializer{kFloat32, {}, [](Graph& graph) { return Constant(graph, 1.0f); }},
      "total");
  const Output zero = ZerosLike(n_);
  const Outputs end = While(
      {zero, w_}, [&](Variables v) { return Less(v[0], n_); },
      [&](Variables v) {
        return Outputs{Add(v[0], 1), AssignAdd(variable, w_)};
      });
  const Output chosen = If(
      p_, [&] { return Outputs{Assign(variable, w_)}; },
      [&] { return Outputs{Identity(variable)}; })[0];
  Session session(graph_);
  session.Initialize();
  const Tensor w = Tensor::Scalar(0.5f);
  EXPECT_EQ(session.Run({{n_, Tensor::Scalar<int64_t>(4)}, {w_, w}}, end[1]).scalar<float>(), 3.0f);
  EXPECT_EQ(session.Run(variable).scalar<float>(), 3.0f);
  EXPECT_EQ(session.Run({{p_, Tensor::Scalar(false)}, {w_, w}}, chosen).scalar<float>(), 3.0f);
  EXPECT_EQ(session.Run({{p_, Tensor::Scalar(true)}, {w_, w}}, chosen).scalar<float>(), 0.5f);
  EXPECT_EQ(session.Run(variable).scalar<float>(), 0.5f);
}

TEST_F(ControlFlowTest, GroupRunsAllAndAssertStops) {
  const Output variable = Variable(
      graph_, Initializer{kFloat32, {}, [](Graph& graph) { return Constant(graph, 0.0f); }}, "v");
  const Node* checked = Assert(p_, Outputs{w_}, "p must hold");
  std::vector<const Node*> nodes = {checked};
  {
    const ControlScope after(graph_, {checked});
    nodes.push_back(AssignAdd(variable, w_).node);
  }
  const Node* all = Group(graph_, nodes);
  Session session(graph_);
  session.Initialize();
  const Tensor w = Tensor::Scalar(2.0f);
  session.RunTargets({{p_, Tensor::Scalar(true)}, {w_, w}}, {all});
  EXPECT_EQ(session.Run(variable).scalar<float>(), 2.0f);
  try {
    session.RunTargets({{p_, Tensor::Scalar(false)}, {w_, w}}, {all});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("p must hold: the condition is false; w = float32 [] {2}"));
  }
  EXPECT_EQ(session.Run(variable).scalar<float>(), 2.0f);
}

TEST_F(ControlFlowTest, SeveralThreadsRunOneLoop) {
  const Output sum = Loop(n_, x_, w_)[1];
  Session session(graph_);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t n = t * 7 + i;
        const Tensor value =
            session.Run({{n_, Tensor::Scalar(n)}, {x_, two_}, {w_, Tensor::Scalar(1.0f)}}, sum);
        EXPECT_EQ(value.scalar<int64_t>(), n * (n - 1) / 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti
