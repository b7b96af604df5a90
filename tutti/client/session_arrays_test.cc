// Array ops as a session runs them: shapes that only the run knows, and views of planned memory.
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/random.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"

namespace tutti {
namespace {

using ::tutti::testing::SessionUnderTest;

class SessionArraysTest : public ::testing::Test {
 protected:
  SessionArraysTest() { RegisterCpuKernels(); }
  Graph graph_;
};

TEST_F(SessionArraysTest, ShapesThatDependOnValues) {
  const Output ids = Placeholder(graph_, kInt64, {-1}, "ids");
  const Output table = Constant(graph_, Tensor::Of<float>({3, 1}, {10, 20, 30}));
  const UniqueResult unique = Unique(ids);
  const Output rows = Gather(table, unique.values);
  const Output back = Reshape(Gather(rows, unique.indices), ShapeOf(ids));
  const Output numbers = Range(int64_t{0}, Size(unique.values), int64_t{1});
  const Output filled = Fill(ShapeOf(rows), 7.0f);
  SessionUnderTest session(graph_);
  const auto run = [&](const Tensor& value) {
    std::string text;
    for (const Tensor& t : session.Run({{ids, value}}, {rows, back, numbers, filled})) {
      text += t.ToString() + "; ";
    }
    return text;
  };
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(run(Tensor::Vector<int64_t>({2, 0, 2})),
              "float32 [2, 1] {30, 10}; float32 [3] {30, 10, 30}; int64 [2] {0, 1}; "
              "float32 [2, 1] {7, 7}; ");
    EXPECT_EQ(run(Tensor::Vector<int64_t>({1})),
              "float32 [1, 1] {20}; float32 [1] {20}; int64 [1] {0}; float32 [1, 1] {7}; ");
    EXPECT_EQ(run(Tensor::Vector<int64_t>({})),
              "float32 [0, 1] {}; float32 [0] {}; int64 [0] {}; float32 [0, 1] {}; ");
  }
  try {
    session.Run({{ids, Tensor::Vector<int64_t>({0, 3})}}, rows);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfRange);
    EXPECT_NE(std::string(error.what()).find("indices[1] is 3; expected 0 to 2"), std::string::npos)
        << error.what();
  }
}

// A fetched view keeps its values when the next step runs.
TEST_F(SessionArraysTest, FetchedViewsAreNotOverwritten) {
  const Output x = Placeholder(graph_, kFloat32, {2, 2}, "x");
  const Output turned = Transpose(x);
  const Output view = Identity(Reshape(ExpandDims(turned, 0), {4}));
  const Output copy = Concat({view, view}, 0);
  SessionUnderTest session(graph_);
  const auto first = session.Run({{x, Tensor::Of<float>({2, 2}, {1, 2, 3, 4})}}, {view, copy, x});
  const auto second = session.Run({{x, Tensor::Of<float>({2, 2}, {5, 6, 7, 8})}}, {view, copy, x});
  EXPECT_EQ(first[0].ToString(), "float32 [4] {1, 3, 2, 4}");
  EXPECT_EQ(first[1].ToString(), "float32 [8] {1, 3, 2, 4, 1, 3, 2, 4}");
  EXPECT_EQ(second[0].ToString(), "float32 [4] {5, 7, 6, 8}");
}

TEST_F(SessionArraysTest, RandomOpsChangeFromRunToRun) {
  const Output a = RandomUniform(graph_, {100}, {.random = {.seed = 1}});
  const Output fixed =
      RandomUniform(graph_, {100}, {.random = {.seed = 1, .step = Constant(graph_, int64_t{5})}});
  SessionUnderTest session(graph_);
  const Tensor first = session.Run(a);
  EXPECT_FALSE(first.BitwiseEquals(session.Run(a)));
  EXPECT_TRUE(session.Run(fixed).BitwiseEquals(session.Run(fixed)));
  SessionUnderTest other(graph_);
  EXPECT_TRUE(first.BitwiseEquals(other.Run(a))) << "a new session repeats the numbers";
}

}  // namespace
}  // namespace tutti
