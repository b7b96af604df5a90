#include "tutti/graph/ops/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SoftmaxTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  absl::StatusOr<std::vector<Tensor>> Run(std::string_view op, std::vector<Tensor> inputs,
                                          const AttrList& attrs = {}) {
    KernelRunner runner(GetParam());
    return runner.RunOp(op, inputs, attrs);
  }
};

TEST_P(SoftmaxTest, LargeLogitsDoNotOverflow) {
  const Tensor x = Tensor::Of<float>({2, 3}, {1000, 1000, -kInfinity, -1000, -1000, -1000});
  const auto y = Run("Softmax", {x});
  ASSERT_TRUE(y.ok());
  const auto values = (*y)[0].values<float>();
  EXPECT_FLOAT_EQ(values[0], 0.5f);
  EXPECT_EQ(values[2], 0);
  EXPECT_FLOAT_EQ(values[3], 1.0f / 3);
  const auto log_y = Run("LogSoftmax", {x});
  EXPECT_FLOAT_EQ((*log_y)[0].values<float>()[1], std::log(0.5f));
  EXPECT_EQ((*log_y)[0].values<float>()[2], -kInfinity);
}

TEST_P(SoftmaxTest, NanAndInfinitySpoilTheirRowOnly) {
  const Tensor x = Tensor::Of<float>({3, 2}, {std::nanf(""), 1, kInfinity, 1, 0, 0});
  const auto y = Run("Softmax", {x});
  ASSERT_TRUE(y.ok());
  const auto values = (*y)[0].values<float>();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  EXPECT_EQ(values[4], 0.5f);
}

TEST_P(SoftmaxTest, SparseCrossEntropy) {
  const Tensor logits = Tensor::Of<float>({2, 2}, {0, 0, 1, 3});
  const auto result = Run("SparseSoftmaxCrossEntropy", {logits, Tensor::Vector<int32_t>({1, 0})});
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR((*result)[0].values<float>()[0], 0.693147f, 1e-6f);
  EXPECT_NEAR((*result)[0].values<float>()[1], 2.126928f, 1e-6f);
  EXPECT_NEAR((*result)[1].values<float>()[0], 0.5f, 1e-6f);
  EXPECT_NEAR((*result)[1].values<float>()[1], -0.5f, 1e-6f);
  EXPECT_NEAR((*result)[1].values<float>()[2], 0.1192029f - 1, 1e-6f);
}

TEST_P(SoftmaxTest, LabelsOutOfRangeAreNamed) {
  const Tensor logits = Tensor::Zeros(kFloat32, {2, 3});
  for (const char* op : {"SparseSoftmaxCrossEntropy", "InTopK"}) {
    const AttrList attrs =
        std::string_view(op) == "InTopK" ? AttrList{{"k", int64_t{1}}} : AttrList{};
    for (const int64_t bad : {int64_t{-1}, int64_t{3}, int64_t{1} << 40}) {
      const auto result = Run(op, {logits, Tensor::Vector<int64_t>({2, bad})}, attrs);
      EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
      EXPECT_NE(MessageOf(result.status())
                    .find(fmt::format("{} of row 1 is out of range; there are 3 classes, expected "
                                      "0 to 2",
                                      bad)),
                std::string_view::npos)
          << result.status();
    }
  }
}

TEST_P(SoftmaxTest, LabelsNeedNotSumToOne) {
  const Tensor logits = Tensor::Of<float>({1, 2}, {0, 0});
  const auto result = Run("SoftmaxCrossEntropy", {logits, Tensor::Of<float>({1, 2}, {3, 1})});
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR((*result)[0].values<float>()[0], 4 * 0.693147f, 1e-5f);
  EXPECT_NEAR((*result)[1].values<float>()[0], -1, 1e-6f);
  EXPECT_NEAR((*result)[1].values<float>()[1], 1, 1e-6f);
}

TEST_P(SoftmaxTest, ImpossibleClassesWithoutWeightCostNothing) {
  const Tensor logits = Tensor::Of<float>({1, 3}, {0, 0, -kInfinity});
  const auto result = Run("SoftmaxCrossEntropy", {logits, Tensor::Of<float>({1, 3}, {1, 0, 0})});
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR((*result)[0].values<float>()[0], 0.693147f, 1e-6f);
  EXPECT_EQ((*result)[1].values<float>()[2], 0);
}

TEST_P(SoftmaxTest, SigmoidCrossEntropyIsStable) {
  const auto result = Run("SigmoidCrossEntropy", {Tensor::Vector<float>({100, -100, 0, 200}),
                                                  Tensor::Vector<float>({0, 1, 0.5f, 1})});
  ASSERT_TRUE(result.ok());
  EXPECT_FLOAT_EQ((*result)[0].values<float>()[0], 100);
  EXPECT_FLOAT_EQ((*result)[0].values<float>()[1], 100);
  EXPECT_NEAR((*result)[0].values<float>()[2], 0.693147f, 1e-6f);
  EXPECT_EQ((*result)[0].values<float>()[3], 0);
}

TEST_P(SoftmaxTest, InTopKCountsStrictlyLargerOnes) {
  const Tensor predictions =
      Tensor::Of<float>({4, 3}, {3, 2, 1, 3, 2, 1, 1, 1, 1, kInfinity, 1, 0});
  const auto result =
      Run("InTopK", {predictions, Tensor::Vector<int32_t>({0, 1, 2, 0})}, {{"k", int64_t{1}}});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE((*result)[0].BitwiseEquals(Tensor::Vector<bool>({true, false, true, false})));
}

INSTANTIATE_TEST_SUITE_P(Kinds, SoftmaxTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

TEST(SoftmaxShapes, LabelsMustFitTheRows) {
  Graph graph;
  const Output logits = Placeholder(graph, kFloat32, {kUnknownDim, 10}, "logits");
  const Output labels = Placeholder(graph, kInt32, {32}, "labels");
  EXPECT_EQ(SparseSoftmaxCrossEntropy(logits, labels).backprop.shape(), (Shape{32, 10}));
  try {
    SparseSoftmaxCrossEntropy(Placeholder(graph, kFloat32, {16, 10}), labels, "loss");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("labels do not fit the rows of logits: logits is float32 [16, 10], labels "
                        "is int32 [32]; expected labels of shape [16]"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
