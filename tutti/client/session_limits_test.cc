// What is too large, too many, out of range or easily mistaken in a step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/cores.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::tutti::testing::ErrorOf;
using ::tutti::testing::SessionUnderTest;

using ::testing::HasSubstr;

class SessionLimitsTest : public ::testing::Test {
 protected:
  SessionLimitsTest() { RegisterCpuKernels(); }

  Graph graph_;
};

TEST_F(SessionLimitsTest, TellsStepsApartByOutputsBeyondThe256th) {
  std::vector<float> numbers(300);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  const Output a = Constant(graph_, Tensor::Of<float>({300}, numbers));
  const Output b = Constant(graph_, Tensor::Of<float>({300}, numbers));
  const std::vector<Output> as = Unpack(a);
  const std::vector<Output> bs = Unpack(Neg(b));
  const std::vector<Output> cs = Unpack(a);  // one of the ids is odd, one even
  SessionUnderTest session(graph_);
  for (const auto& [parts, sign] :
       {std::pair(&as, 1.0f), std::pair(&bs, -1.0f), std::pair(&cs, 1.0f)}) {
    for (const int i : {0, 1, 255, 256, 257, 299}) {
      EXPECT_EQ(session.Run((*parts)[i]).scalar<float>(), sign * float(i)) << i;
      // Any output may be fed.
      EXPECT_EQ(session.Run({{(*parts)[i], Tensor::Scalar(-7.0f)}}, (*parts)[i]).scalar<float>(),
                -7.0f);
    }
  }
}

TEST_F(SessionLimitsTest, RefusesValuesThatNoMemoryHolds) {
  SessionUnderTest session(graph_);
  for (const int64_t elements : {int64_t{1} << 62, int64_t{1} << 61, int64_t{1} << 50}) {
    const Output dims = Constant(graph_, Tensor::Of<int64_t>({1}, {elements}));
    const Output one = Constant(graph_, Tensor::Scalar(1.0f));
    const std::string message = ErrorOf([&] { session.Run(Sum(Fill(dims, one))); });
    EXPECT_THAT(message, HasSubstr("Fill \"Fill"));
    EXPECT_THAT(message, HasSubstr("bytes")) << elements;
  }
}

TEST_F(SessionLimitsTest, PlansAHundredThousandNodesBehindOneThatWaits) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, Shape{16}}});
  const Output x = Placeholder(graph_, kFloat32, {16}, "x");
  const Node* put = Enqueue(queue, {x});
  Output y = Dequeue(queue)[0];
  for (int i = 0; i < 100'000; ++i) y = Neg(y);
  SessionUnderTest session(graph_, {.optimize = false});
  session.RunTargets({{x, Tensor::Of<float>({16}, std::vector<float>(16, 1.0f))}}, {put});
  EXPECT_EQ(session.Run(Sum(y)).scalar<float>(), 16.0f);
}

TEST_F(SessionLimitsTest, TimeoutCoversCompiling) {
  // All of it is folded, so the step itself has nothing to do.
  Output y = Constant(graph_, Tensor::Scalar(1.0f));
  for (int i = 0; i < 20'000; ++i) y = Neg(y);
  SessionUnderTest session(graph_);
  EXPECT_THAT(ErrorOf([&] { session.Run(y, {.timeout = std::chrono::milliseconds(1)}); }),
              HasSubstr("timeout of 1 ms"));
  EXPECT_EQ(session.Run(y).scalar<float>(), 1.0f);
}

TEST_F(SessionLimitsTest, SaysWhichOutputIsNotThere) {
  Graph other;
  const Output x = Placeholder(graph_, kFloat32, {2}, "x");
  const Output y = Neg(x, "y");
  const Output none = {x.node, 3};
  const Output below = {x.node, -1};
  const Tensor value = Tensor::Vector<float>({1, 2});
  SessionUnderTest session(graph_);
  EXPECT_THAT(ErrorOf([&] { session.Run({{none, value}}, y); }), HasSubstr("there is no output 3"));
  EXPECT_THAT(ErrorOf([&] {
                session.Run({{x, value}}, below);
              }),
              HasSubstr("there is no output -1; it has 1"));
  EXPECT_THAT(ErrorOf([&] { Neg(none); }), HasSubstr("input 0 is output 3 of Placeholder \"x\""));
  EXPECT_THAT(ErrorOf([&] { Add(x, Output()); }), HasSubstr("input 1 is empty"));
  EXPECT_THAT(ErrorOf([&] { Gradients({y}, {Output()}); }), HasSubstr("x 0 is empty"));
  EXPECT_THAT(ErrorOf([&] { Gradients({Output()}, {x}); }), HasSubstr("y 0 is empty"));
  EXPECT_THAT(ErrorOf([&] { Gradients({y}, {none}); }), HasSubstr("x 0 is output 3"));
  const Node* stranger = Placeholder(other, kFloat32, {2}, "stranger").node;
  const ControlScope scope(graph_, {stranger});
  EXPECT_THAT(ErrorOf([&] { Neg(x); }), HasSubstr("control input Placeholder \"stranger\""));
}

TEST_F(SessionLimitsTest, RefusesMoreCoresThanThereCanBe) {
  for (const int cores : {-1, std::max(UsableCores(), 16) + 1, 1'000'000'000}) {
    EXPECT_THAT(ErrorOf([&] { Session(graph_, {.cores_per_device = cores}); }),
                HasSubstr(fmt::format("this process may use {} cores; expected 1 to {}, or 0",
                                      UsableCores(), std::max(UsableCores(), 16))));
  }
}

TEST_F(SessionLimitsTest, ControlBetweenDevicesIsNotTakenForANodeOfThatName) {
  const Output x = Placeholder(graph_, kFloat32, {2}, "x");
  Output first, value;
  {
    const DeviceScope scope(graph_, "/cpu:0");
    first = Neg(x, "first");
    value = Square(x, "first.done");
  }
  const DeviceScope scope(graph_, "/cpu:1");
  const ControlScope after(graph_, {first.node});
  const Output y = Neg(value, "y");
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1});
  EXPECT_EQ(session.Run({{x, Tensor::Vector<float>({1, 2})}}, {y, first})[0].ToString(),
            "float32 [2] {-1, -4}");
}

}  // namespace
}  // namespace tutti
