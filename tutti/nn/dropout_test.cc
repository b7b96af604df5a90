// Which elements dropout drops: the same ones for a sample wherever it is, in every run of a step.
#include "tutti/nn/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"

namespace tutti::nn {
namespace {

class DropoutLayer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  static Tensor OnesOf(const Shape& shape) {
    Tensor ones(kFloat32, shape);
    for (float& value : ones.values<float>()) value = 1;
    return ones;
  }
  // Different in every element.
  static Tensor Numbered(const Shape& shape) {
    Tensor numbers(kFloat32, shape);
    float next = 0;
    for (float& value : numbers.values<float>()) value = std::sin(next++);
    return numbers;
  }
  static Tensor Rows(const Tensor& whole, int64_t from, int64_t count) {
    const int64_t row = whole.elements() / whole.shape()[0];
    Tensor rows(kFloat32, whole.shape().WithDim(0, count));
    std::copy_n(whole.data<float>() + from * row, count * row, rows.data<float>());
    return rows;
  }
  static void ExpectNear(const Tensor& found, const Tensor& expected) {
    ASSERT_EQ(found.shape(), expected.shape());
    for (int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_NEAR(found.data<float>()[i], expected.data<float>()[i], 1e-5) << "element " << i;
    }
  }

  Graph graph_;
  Output first_ = Placeholder(graph_, kInt64, Shape{}, "first");
  Output samples_ = Placeholder(graph_, kInt64, Shape{}, "samples");
};

TEST_F(DropoutLayer, FollowsTheGlobalStepWhereTheGraphHasOne) {
  const Output step = Variable(graph_, Zeros({}, kInt64), "global_step", {.trainable = false});
  const Output x = Placeholder(graph_, kFloat32, {1000}, "x");
  const Output y = nn::Dropout(x, 0.5);
  const Output next = AssignAdd(step, int64_t{1});
  const Tensor ones = OnesOf({1000});
  Session session(graph_);
  session.Initialize();
  const Tensor at_0 = session.Run({{x, ones}}, y);
  EXPECT_TRUE(session.Run({{x, ones}}, y).BitwiseEquals(at_0)) << "another run of the same step";
  session.Run(next);
  const Tensor at_1 = session.Run({{x, ones}}, y);
  EXPECT_FALSE(at_1.BitwiseEquals(at_0));
  Session other(graph_);
  other.Initialize();
  for (int i = 0; i < 3; ++i) other.Run({{x, ones}}, y);
  other.Run(next);
  EXPECT_TRUE(other.Run({{x, ones}}, y).BitwiseEquals(at_1));
}

TEST_F(DropoutLayer, DropsTheSameOfASampleHoweverTheBatchIsDivided) {
  const Output x = Placeholder(graph_, kFloat32, {-1, 3, 5}, "x");
  const Output step = Constant(graph_, int64_t{7});
  const Output y = nn::Dropout(x, 0.5, {.first_sample = first_, .step = step});
  Session session(graph_);
  const auto run = [&](const Tensor& batch, int64_t first) {
    return session.Run({{x, batch}, {first_, Tensor::Scalar(first)}}, y);
  };
  const Tensor whole = run(OnesOf({8, 3, 5}), 0);
  EXPECT_TRUE(run(OnesOf({3, 3, 5}), 0).BitwiseEquals(Rows(whole, 0, 3)));
  EXPECT_TRUE(run(OnesOf({5, 3, 5}), 3).BitwiseEquals(Rows(whole, 3, 5)));
  EXPECT_EQ(run(OnesOf({0, 3, 5}), 8).elements(), 0);
}

TEST_F(DropoutLayer, AttentionDropsTheSameOfASampleHoweverTheBatchIsDivided) {
  const Output x = Placeholder(graph_, kFloat32, {-1, 6, 4}, "x");
  const Output y = MultiHeadAttention(
      x,
      {.heads = 2, .dropout = 0.5, .first_sample = first_, .step = Constant(graph_, int64_t{7})});
  Session session(graph_);
  session.Initialize();
  const auto run = [&](const Tensor& batch, int64_t first) {
    return session.Run({{x, batch}, {first_, Tensor::Scalar(first)}}, y);
  };
  const Tensor batch = Numbered({8, 6, 4});
  const Tensor whole = run(batch, 0);
  ExpectNear(run(Rows(batch, 0, 3), 0), Rows(whole, 0, 3));
  ExpectNear(run(Rows(batch, 3, 5), 3), Rows(whole, 3, 5));
  ExpectNear(run(batch, 0), whole);
}

TEST_F(DropoutLayer, TakesItsPlaceFromTheSampleScope) {
  const Output x = Placeholder(graph_, kFloat32, {-1, 3, 5}, "x");
  const Output step = Constant(graph_, int64_t{7});
  Output rows, merged, weights;
  {
    SampleScope scope(first_, samples_);
    rows = nn::Dropout(x, 0.5, {.step = step});
    // The batch is merged with another dimension: each sample has three rows.
    merged = Reshape(nn::Dropout(Reshape(x, {-1, 5}), 0.5, {.step = step}), {-1, 3, 5});
    weights = nn::Dropout(Constant(graph_, OnesOf({40, 2})), 0.5, {.step = step});
  }
  EXPECT_EQ(SampleScope::Current(), nullptr);
  Session session(graph_);
  const auto run = [&](Output y, int64_t first, int64_t count) {
    return session.Run({{x, OnesOf({count, 3, 5})},
                        {first_, Tensor::Scalar(first)},
                        {samples_, Tensor::Scalar(count)}},
                       y);
  };
  for (const Output& y : {rows, merged}) {
    const Tensor whole = run(y, 0, 8);
    EXPECT_TRUE(run(y, 0, 3).BitwiseEquals(Rows(whole, 0, 3)));
    EXPECT_TRUE(run(y, 3, 5).BitwiseEquals(Rows(whole, 3, 5)));
    EXPECT_EQ(run(y, 8, 0).elements(), 0) << "a worker without samples";
  }
  EXPECT_TRUE(run(weights, 0, 8).BitwiseEquals(run(weights, 3, 5))) << "alike on all workers";
}

TEST_F(DropoutLayer, AScalarHasNoSamples) {
  const Output x = Placeholder(graph_, kFloat32, Shape{}, "x");
  try {
    nn::Dropout(x, 0.5, {.first_sample = first_});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the input Placeholder \"x\""));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("is a scalar; expected a first dimension"));
  }
}

}  // namespace
}  // namespace tutti::nn
