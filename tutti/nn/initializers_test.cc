#include "tutti/nn/initializers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/seed.h"

namespace tutti {
namespace {

class Initializers : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
};

// The value that a session gives to a variable of that name in a graph of that seed.
Tensor Initial(const Initializer& initializer, int64_t seed = 0, const char* name = "v") {
  Graph graph;
  SetSeed(graph, seed);
  const Output variable = Variable(graph, initializer, name);
  Session session(graph);
  session.Initialize();
  return session.Run(variable);
}

struct Moments {
  double mean = 0;
  double stddev = 0;
  double largest = 0;
};
Moments MomentsOf(const Tensor& tensor) {
  Moments result;
  for (const float value : tensor.values<float>()) {
    result.mean += value;
    result.stddev += double(value) * value;
    result.largest = std::max(result.largest, std::abs(double(value)));
  }
  result.mean /= double(tensor.elements());
  result.stddev = std::sqrt(result.stddev / double(tensor.elements()) - result.mean * result.mean);
  return result;
}

TEST_F(Initializers, FixedValues) {
  EXPECT_TRUE(Initial(Zeros({2})).BitwiseEquals(Tensor::Vector<float>({0, 0})));
  EXPECT_TRUE(Initial(Ones({2}, kInt64)).BitwiseEquals(Tensor::Vector<int64_t>({1, 1})));
  EXPECT_TRUE(Initial(Full({1, 2}, 0.5)).BitwiseEquals(Tensor::Of<float>({1, 2}, {0.5, 0.5})));
  EXPECT_TRUE(Initial(Zeros({}, kInt64)).BitwiseEquals(Tensor::Scalar<int64_t>(0)));
  EXPECT_EQ(Initial(Zeros({0, 3})).shape(), Shape({0, 3}));
  const Tensor value = Tensor::Vector<double>({1, 2, 3});
  EXPECT_TRUE(Initial(Value(value)).BitwiseEquals(value));
}

TEST_F(Initializers, RandomValuesHaveTheirDistribution) {
  const Moments even = MomentsOf(Initial(RandomUniform({100, 100}, -1, 1)));
  EXPECT_NEAR(even.mean, 0, 0.03);
  EXPECT_NEAR(even.stddev, 1 / std::sqrt(3.0), 0.02);
  EXPECT_LE(even.largest, 1);
  const Moments normal = MomentsOf(Initial(RandomNormal({100, 100}, 2, 0.5)));
  EXPECT_NEAR(normal.mean, 2, 0.03);
  EXPECT_NEAR(normal.stddev, 0.5, 0.02);
  const Moments truncated = MomentsOf(Initial(TruncatedNormal({100, 100}, 0, 1)));
  EXPECT_LE(truncated.largest, 2);
  EXPECT_NEAR(truncated.stddev, 0.8796, 0.02);
  const Moments glorot = MomentsOf(Initial(GlorotUniform({3, 3, 10, 20})));
  EXPECT_NEAR(glorot.stddev, std::sqrt(2.0 / (90 + 180)), 0.005);
  const Moments he = MomentsOf(Initial(HeNormal({50, 200})));
  EXPECT_NEAR(he.stddev, std::sqrt(2.0 / 50), 0.01);
}

TEST_F(Initializers, RandomValuesFollowFromSeedAndNameAlone) {
  const Tensor first = Initial(RandomUniform({100}, -1, 1), 1);
  EXPECT_TRUE(Initial(RandomUniform({100}, -1, 1), 1).BitwiseEquals(first));
  EXPECT_FALSE(Initial(RandomUniform({100}, -1, 1), 2).BitwiseEquals(first));
  EXPECT_FALSE(Initial(RandomUniform({100}, -1, 1), 1, "w").BitwiseEquals(first));
  // What else is in the graph, and how often it ran, does not matter.
  Graph graph;
  SetSeed(graph, 1);
  const Output other = Constant(graph, 1.0f);
  const Output variable = Variable(graph, RandomUniform({100}, -1, 1), "v");
  Session session(graph);
  for (int i = 0; i < 3; ++i) session.Run(other);
  session.Initialize();
  EXPECT_TRUE(session.Run(variable).BitwiseEquals(first));
}

TEST_F(Initializers, RefusesUnknownShapes) {
  try {
    GlorotUniform({-1, 3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "GlorotUniform: the shape is [?, 3]; a variable's dimensions must all be known");
  }
  EXPECT_THROW(Value(Tensor()), Error);
  EXPECT_THROW(Full({2}, 1.5, kInt32), Error);
  EXPECT_THROW(Full({2}, 1e300), Error);
}

}  // namespace
}  // namespace tutti
