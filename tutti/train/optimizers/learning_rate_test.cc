#include "tutti/train/optimizers/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

class LearningRates : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  // The rate at each of `steps`.
  static std::vector<float> At(const LearningRate& rate, const std::vector<int64_t>& steps) {
    Graph graph;
    const Output step = Placeholder(graph, kInt64, {}, "step");
    const Output built = rate.Build(step);
    EXPECT_EQ(built.dtype(), kFloat32);
    EXPECT_EQ(built.shape(), Shape{});
    Session session(graph);
    std::vector<float> rates;
    for (const int64_t at : steps) {
      rates.push_back(session.Run({{step, Tensor::Scalar(at)}}, built).scalar<float>());
    }
    return rates;
  }
  static void ExpectNear(const std::vector<float>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-12) << i;
    }
  }
};

TEST_F(LearningRates, Constant) { ExpectNear(At(0.25, {0, 1, 1000}), {0.25, 0.25, 0.25}); }

TEST_F(LearningRates, Steps) {
  ExpectNear(At(StepDecay({.initial = 1, .boundaries = {10, 20}, .factor = 0.1}),
                {0, 9, 10, 19, 20, 1000}),
             {1, 1, 0.1, 0.1, 0.01, 0.01});
}

TEST_F(LearningRates, Exponential) {
  ExpectNear(At(ExponentialDecay({.initial = 8, .steps = 10, .factor = 0.25}), {0, 5, 10, 20}),
             {8, 4, 2, 0.5});
  ExpectNear(At(ExponentialDecay({.initial = 8, .steps = 10, .factor = 0.25, .staircase = true}),
                {0, 9, 10, 25}),
             {8, 8, 2, 0.5});
}

TEST_F(LearningRates, Cosine) {
  ExpectNear(At(CosineDecay({.initial = 1, .steps = 100, .last = 0.2}), {0, 25, 50, 100, 500}),
             {1, 0.6 + 0.4 * std::cos(std::numbers::pi / 4), 0.6, 0.2, 0.2});
}

TEST_F(LearningRates, Polynomial) {
  ExpectNear(At(PolynomialDecay({.initial = 1, .steps = 10, .last = 0.5}), {0, 5, 10, 11}),
             {1, 0.75, 0.5, 0.5});
  ExpectNear(At(PolynomialDecay({.initial = 4, .steps = 10, .power = 2}), {0, 5, 10}), {4, 1, 0});
}

TEST_F(LearningRates, WarmupGrowsThenFollows) {
  const LearningRate rate = WithWarmup(4, StepDecay({.initial = 1, .boundaries = {2}}));
  ExpectNear(At(rate, {0, 1, 2, 3, 4, 5, 6}), {0.2, 0.4, 0.6, 0.8, 1, 1, 0.1});
  // Steps past 2^24 are told apart.
  ExpectNear(At(PolynomialDecay({.initial = 1, .steps = int64_t{1} << 40}), {int64_t{1} << 39}),
             {0.5});
}

TEST_F(LearningRates, NamesTheOptionThatIsWrong) {
  try {
    CosineDecay({.initial = 1, .steps = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CosineDecay: steps is 0; expected at least 1");
  }
  EXPECT_THROW(StepDecay({.initial = 1, .boundaries = {5, 5}}), Error);
  EXPECT_THROW(ExponentialDecay({.initial = -1}), Error);
  EXPECT_THROW(WithWarmup(0, 1.0), Error);
}

}  // namespace
}  // namespace tutti
