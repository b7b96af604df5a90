#include "tutti/client/session.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::tutti::testing::ErrorOf;
using ::tutti::testing::SessionUnderTest;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { RegisterCpuKernels(); }
};

TEST_F(SessionTest, RunsAProduct) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
  const Output w = Constant(graph, Tensor::Of<float>({2, 1}, {10, 1}), "w");
  const Output y = MatMul(x, w, {}, "y");
  SessionUnderTest session(graph);
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({1, 2}, {1, 2})}}, y).ToString(),
            "float32 [1, 1] {12}");
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({2, 2}, {1, 2, 3, 4})}}, y).ToString(),
            "float32 [2, 1] {12, 34}");
}

TEST_F(SessionTest, SaysWhatIsWrongWithARequestAndStaysUsable) {
  Graph graph, other;
  const Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
  const Output w = Constant(graph, Tensor::Of<float>({2, 1}, {10, 1}), "w");
  const Output y = MatMul(x, w, {}, "y");
  const Output foreign = Placeholder(other, kFloat32, {1}, "z");
  SessionUnderTest session(graph);
  EXPECT_NE(
      ErrorOf([&] { session.Run(y); }).find("has no value in this run; feed it a float32 [?, 2]"),
      std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              session.Run({{x, Tensor::Zeros(kFloat32, {1, 3})}}, y);
            }).find("expected float32 [?, 2], got float32 [1, 3]"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { session.Run(foreign); }).find("belongs to another graph"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { session.Run(Output()); }).find("a fetch is empty"), std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              session.Run({{x, Tensor()}}, y);
            }).find("the tensor is empty"),
            std::string::npos);
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({1, 2}, {1, 2})}}, y).ToString(),
            "float32 [1, 1] {12}");
}

TEST_F(SessionTest, SeesNodesAddedLater) {
  Graph graph;
  const Output a = Constant(graph, Tensor::Of<float>({1, 1}, {3}), "a");
  SessionUnderTest session(graph);
  const Output b = MatMul(a, a, {}, "b");
  EXPECT_EQ(session.Run(b).ToString(), "float32 [1, 1] {9}");
}

TEST_F(SessionTest, CrossesDevices) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {1, 1}, "x");
  Output y = x;
  for (int i = 0; i < 20; ++i) {
    DeviceScope scope(graph, i % 2 == 0 ? "/cpu:1" : "/cpu:0");
    y = MatMul(y, x);
  }
  SessionUnderTest session(graph, {.devices = 2, .cores_per_device = 1});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(session.Run({{x, Tensor::Of<float>({1, 1}, {-1})}}, y).ToString(),
              "float32 [1, 1] {-1}");
  }
}

TEST_F(SessionTest, NamesItsDevicesByTheTask) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {1, 1}, "x");
  const Output y = MatMul(x, x, {}, "y");
  SessionUnderTest session(graph, {.job = "worker", .task = 3});
  RunTrace trace;
  const Feed feed = {x, Tensor::Of<float>({1, 1}, {2})};
  session.Run({&feed, 1}, {&y, 1}, {}, {.trace = true, .trace_result = &trace});
  ASSERT_FALSE(trace.nodes.empty());
  for (const NodeTrace& node : trace.nodes) EXPECT_EQ(node.device, "/job:worker/task:3/cpu:0");
}

}  // namespace
}  // namespace tutti
