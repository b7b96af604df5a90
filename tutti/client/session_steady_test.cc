// What a step costs and keeps: no system allocation once warm, updates in place, values that stay
// what they were.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/update.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/allocation_count.h"
#include "tutti/testing/client/session_under_test.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

using ::tutti::testing::SessionUnderTest;

Initializer Filled(const Shape& shape, float value) {
  return {kFloat32, shape, [=](Graph& graph) {
            Tensor t(kFloat32, shape);
            for (float& v : t.values<float>()) v = value;
            return Constant(graph, t);
          }};
}

class SteadyTest : public ::testing::Test {
 protected:
  SteadyTest() { RegisterCpuKernels(); }
};

TEST_F(SteadyTest, AWarmTrainingStepAllocatesNothing) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 16}, "x");
  const Output w = Variable(graph, Filled({16, 4}, 0.5f), "w");
  const Output y = MatMul(x, w, {}, "y");
  const Output gradient = MatMul(x, y, {.transpose_a = true});
  const Output rate = Constant(graph, 1e-3f, "rate");
  const Output update = ApplyGradientDescent(w, rate, gradient);
  SessionUnderTest session(graph, {.cores_per_device = 1});
  session.Initialize();
  const std::vector<Feed> feeds = {{x, Tensor::Zeros(kFloat32, {8, 16})}};
  const std::vector<const Node*> targets = {update.node};
  const std::vector<Output> fetches = {y};
  std::vector<Tensor> results(1);
  for (int i = 0; i < 3; ++i) session.RunInto(feeds, fetches, targets, results);
  // mallinfo2 shows what was taken by other ways than operator new, and kept.
  const struct mallinfo2 before = mallinfo2();
  const int64_t counted = testing::AllocationCount();
  for (int i = 0; i < 10; ++i) session.RunInto(feeds, fetches, targets, results);
  if (testing::WorkerIsSerializing()) return;  // bytes have to lie somewhere
  EXPECT_EQ(testing::AllocationCount() - counted, 0);
  EXPECT_EQ(mallinfo2().uordblks, before.uordblks);
}

TEST_F(SteadyTest, DescentByAProductIsTheSameWithAndWithoutPasses) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 16}, "x");
  const Output dy = Placeholder(graph, kFloat32, {-1, 4}, "dy");
  const Output w = Variable(graph, Filled({16, 4}, 0.5f), "w");
  const Output rate = Constant(graph, 0.25f, "rate");
  const Output update =
      ApplyGradientDescent(w, rate, MatMul(x, dy, {.transpose_a = true}), {.scale = 0.5f});
  for (const int64_t rows : {0, 1, 8, 1024}) {
    Tensor values[2];
    for (const bool optimize : {false, true}) {
      SessionUnderTest session(graph, {.cores_per_device = 1, .optimize = optimize});
      session.Initialize();
      Tensor xs(kFloat32, {rows, 16}), dys(kFloat32, {rows, 4});
      for (int64_t i = 0; i < xs.elements(); ++i) xs.data<float>()[i] = float(i % 7) - 3;
      for (int64_t i = 0; i < dys.elements(); ++i) dys.data<float>()[i] = float(i % 5) - 2;
      session.RunTargets({{x, xs}, {dy, dys}}, {update.node});
      values[optimize] = session.Run(w);
    }
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(values[0].data<float>()[i], values[1].data<float>()[i], 1e-3) << rows;
    }
  }
}

TEST_F(SteadyTest, AFetchedVariableDoesNotChangeLater) {
  Graph graph;
  const Output w = Variable(graph, Filled({4}, 1.0f), "w");
  const Output add = AssignAdd(w, Constant(graph, Tensor::Of<float>({4}, {1, 1, 1, 1})));
  SessionUnderTest session(graph);
  session.Initialize();
  const Tensor first = session.Run(w);
  session.RunTargets({}, {add.node});
  EXPECT_EQ(first.ToString(), "float32 [4] {1, 1, 1, 1}");
  EXPECT_EQ(session.Run(w).ToString(), "float32 [4] {2, 2, 2, 2}");
  session.Initialize();
  EXPECT_EQ(session.Run(w).ToString(), "float32 [4] {2, 2, 2, 2}");
}

TEST_F(SteadyTest, AReadInTheSameStepSeesTheValueFromItsStart) {
  Graph graph;
  const Output w = Variable(graph, Filled({2}, 1.0f), "w");
  const Output twice = Add(w, w, "twice");
  const Output after = AssignAdd(w, twice, "after");
  const Output late = Mul(w, 10.0f, "late");
  SessionUnderTest session(graph);
  session.Initialize();
  const auto values = session.Run({}, {twice, after, late});
  EXPECT_EQ(values[0].ToString(), "float32 [2] {2, 2}");
  EXPECT_EQ(values[1].ToString(), "float32 [2] {3, 3}");
  EXPECT_EQ(values[2].ToString(), "float32 [2] {10, 10}");
}

// The update could run as soon as its gradient is there, but must wait for a reader that sees the
// variable through a view; what that reader writes must not land on the gradient.
TEST_F(SteadyTest, AnUpdateWaitsForReadersThroughViewsAndKeepsItsGradient) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {4}, "x");
  const Output w = Variable(graph, Filled({4}, 1.0f), "w");
  const Output gradient = Add(x, x, "gradient");
  const Output row = Reshape(w, Shape{1, 4}, "row");
  const Output product = MatMul(Reshape(x, Shape{4, 1}), row, {}, "product");
  const Output again = MatMul(product, product, {}, "again");
  const Output first = AssignSub(w, gradient, "first");
  const Output second = AssignAdd(w, x, "second");
  for (const bool optimize : {false, true}) {
    SessionUnderTest session(graph, {.optimize = optimize});
    session.Initialize();
    const auto values = session.Run({{x, Tensor::Of<float>({4}, {1, 2, 3, 4})}}, {again},
                                    {first.node, second.node});
    EXPECT_EQ(values[0].values<float>()[0], 10);
    EXPECT_EQ(session.Run(w).ToString(), "float32 [4] {0, -1, -2, -3}");
  }
}

TEST_F(SteadyTest, SeveralThreadsRunOnePlanAtOnce) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {64, 64}, "x");
  Output y = x;
  for (int i = 0; i < 8; ++i) y = Add(MatMul(y, x), x);
  SessionUnderTest session(graph, {.cores_per_device = 1});
  const auto expected = [&](float value) {
    Tensor t = Tensor::Zeros(kFloat32, {64, 64});
    for (int i = 0; i < 64; ++i) t.data<float>()[i * 65] = value;
    return session.Run({{x, t}}, y).Clone();
  };
  std::vector<Tensor> reference;
  for (int k = 0; k < 4; ++k) reference.push_back(expected(0.1f * float(k + 1)));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      Tensor t = Tensor::Zeros(kFloat32, {64, 64});
      for (int i = 0; i < 64; ++i) t.data<float>()[i * 65] = 0.1f * float(k + 1);
      for (int i = 0; i < 50; ++i) {
        if (!session.Run({{x, t}}, y).BitwiseEquals(reference[k])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(SteadyTest, ReadingBeforeInitializeSaysWhatToDo) {
  Graph graph;
  const Output w = Variable(graph, Filled({2}, 1.0f), "w");
  SessionUnderTest session(graph);
  try {
    session.Run(w);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_NE(std::string(error.what())
                  .find("variable \"w\" has no value yet; call Session::Initialize()"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(SteadyTest, AMillionNodesDeep) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {}, "x");
  Output y = x;
  for (int i = 0; i < testing::AMillion(); ++i) y = Neg(y);
  SessionUnderTest session(graph, {.optimize = false});
  EXPECT_EQ(session.Run({{x, Tensor::Scalar<float>(3)}}, y).scalar<float>(), 3);
}

}  // namespace
}  // namespace tutti
