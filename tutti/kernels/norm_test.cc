#include "tutti/graph/ops/norm.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;
using testing::Random;
using testing::RandomTensor;

class NormTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
  std::vector<Tensor> Run(std::string_view op, std::vector<Tensor> inputs,
                          const AttrList& attrs = {}, int cores = 1) {
    KernelRunner runner(GetParam(), cores);
    auto result = runner.RunOp(op, inputs, attrs);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : std::vector<Tensor>(4);
  }
};

TEST_P(NormTest, LayerNormByHand) {
  const auto result =
      Run("LayerNorm",
          {Tensor::Of<float>({1, 4}, {1, 2, 3, 6}), Tensor::Vector<float>({1, 1, 1, 2}),
           Tensor::Vector<float>({0, 0, 0, 1})},
          {{"epsilon", 0.5}});
  EXPECT_FLOAT_EQ(result[1].values<float>()[0], 3);
  EXPECT_FLOAT_EQ(result[2].values<float>()[0], 0.5f);
  const float expected[] = {-1, -0.5f, 0, 4};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(result[0].values<float>()[i], expected[i]);
}

TEST_P(NormTest, BatchNormByHand) {
  const auto result = Run("BatchNorm",
                          {Tensor::Of<float>({2, 2}, {1, 10, 3, 10}), Tensor::Vector<float>({3, 1}),
                           Tensor::Vector<float>({0, 7})},
                          {{"epsilon", 1e-12}});
  const float expected[] = {-3, 7, 3, 7};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(result[0].values<float>()[i], expected[i]);
  EXPECT_FLOAT_EQ(result[1].values<float>()[1], 10);
  EXPECT_FLOAT_EQ(result[2].values<float>()[0], 1);
  EXPECT_FLOAT_EQ(result[2].values<float>()[1], 0);
}

// The difference of the mean square and the squared mean would be all rounding error here.
TEST_P(NormTest, ALargeMeanCostsNoPrecision) {
  Tensor x(kFloat32, {1000, 2});
  for (int64_t i = 0; i < 2000; ++i) x.data<float>()[i] = 10000.0f + float(i / 2 % 2);
  const auto result =
      Run("BatchNorm", {x, Tensor::Vector<float>({1, 1}), Tensor::Vector<float>({0, 0})});
  EXPECT_NEAR(result[2].values<float>()[0], 0.25f, 1e-4f);
  const Tensor rows = x.Reshape({2, 1000});
  Tensor ones(kFloat32, {1000});
  std::fill_n(ones.data<float>(), 1000, 1.0f);
  const auto by_row = Run("LayerNorm", {rows, ones, Tensor::Zeros(kFloat32, {1000})});
  EXPECT_NEAR(by_row[2].values<float>()[0], 2, 1e-3f);
}

TEST_P(NormTest, NothingToNormalize) {
  const Tensor none = Tensor::Zeros(kFloat32, {0, 3});
  const Tensor three = Tensor::Zeros(kFloat32, {3});
  const auto result = Run("BatchNorm", {none, three, three}, {{"epsilon", 0.25}});
  EXPECT_EQ(result[1].values<float>()[0], 0);
  EXPECT_EQ(result[3].values<float>()[2], 2);
  const auto gradients = Run("BatchNormGrad", {none, none, three, three, three});
  EXPECT_EQ(gradients[1].values<float>()[1], 0);
  const auto by_row =
      Run("LayerNormGrad", {none, none, three, Tensor(kFloat32, {0}), Tensor(kFloat32, {0})});
  EXPECT_EQ(by_row[2].values<float>()[1], 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, NormTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

TEST(Norm, ResultsDoNotDependOnTheCores) {
  RegisterCpuKernels();
  Random random(3);
  const Tensor x = RandomTensor(random, kFloat32, {3000, 50});
  const Tensor dy = RandomTensor(random, kFloat32, {3000, 50});
  const Tensor channels = RandomTensor(random, kFloat32, {50});
  const Tensor rows = RandomTensor(random, kFloat32, {3000});
  const std::vector<std::pair<const char*, std::vector<Tensor>>> cases = {
      {"BatchNorm", {x, channels, channels}},
      {"BatchNormGrad", {dy, x, channels, channels, channels}},
      {"LayerNorm", {x, channels, channels}},
      {"LayerNormGrad", {dy, x, channels, rows, rows}}};
  for (const auto& [op, inputs] : cases) {
    KernelRunner one(KernelChoice::kCpuOnly, 1);
    KernelRunner three(KernelChoice::kCpuOnly, 3);
    const auto a = one.RunOp(op, inputs);
    const auto b = three.RunOp(op, inputs);
    ASSERT_TRUE(a.ok() && b.ok());
    for (size_t i = 0; i < a->size(); ++i) EXPECT_TRUE((*a)[i].BitwiseEquals((*b)[i])) << op << i;
  }
}

TEST(Norm, VectorsMustFitTheLastDimension) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 28, 28, 32}, "x");
  const Output scale = Placeholder(graph, kFloat32, {64}, "scale");
  try {
    BatchNorm(x, scale, scale);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("x is float32 [8, 28, 28, 32], scale is float32 [64]; expected [32], the "
                        "last dimension of x"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(LayerNorm(x, scale, scale, {.epsilon = 0}), Error);
}

}  // namespace
}  // namespace tutti
