#include "tutti/graph/ops/linalg.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;

class LinalgTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
  absl::StatusOr<std::vector<Tensor>> Run(std::string_view op, std::vector<Tensor> inputs,
                                          const AttrList& attrs = {}) {
    KernelRunner runner(GetParam());
    return runner.RunOp(op, inputs, attrs);
  }
  void ExpectNear(const absl::StatusOr<std::vector<Tensor>>& result,
                  std::initializer_list<float> expected) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ((*result)[0].elements(), int64_t(expected.size()));
    int64_t i = 0;
    for (const float value : expected) {
      EXPECT_NEAR((*result)[0].values<float>()[i++], value, 1e-5f) << i;
    }
  }
};

TEST_P(LinalgTest, ByHand) {
  // The first pivot is 0, so rows must be exchanged.
  const Tensor a = Tensor::Of<float>({2, 2}, {0, 2, 4, 1});
  ExpectNear(Run("MatrixInverse", {a}), {-0.125f, 0.25f, 0.5f, 0});
  ExpectNear(Run("MatrixInverse", {a}, {{"transpose", true}}), {-0.125f, 0.5f, 0.25f, 0});
  ExpectNear(Run("MatrixDeterminant", {a}), {-8});
  ExpectNear(Run("MatrixSolve", {a, Tensor::Of<float>({2, 1}, {2, 5})}), {1, 1});
  ExpectNear(Run("MatrixSolve", {a, Tensor::Of<float>({2, 1}, {4, 3})}, {{"transpose_a", true}}),
             {1, 1});
  ExpectNear(Run("Cholesky", {Tensor::Of<float>({2, 2}, {4, 2, 2, 10})}), {2, 0, 1, 3});
}

TEST_P(LinalgTest, SingularMatricesAreNamed) {
  const Tensor a = Tensor::Of<float>({3, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 4, 0, 0, 0, 0});
  const auto inverse = Run("MatrixInverse", {a});
  EXPECT_EQ(inverse.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(inverse.status()).find("matrix 1 of 3 in a is singular"),
            std::string_view::npos)
      << inverse.status();
  EXPECT_FALSE(Run("MatrixSolve", {a, Tensor::Zeros(kFloat32, {3, 2, 1})}).ok());
  ExpectNear(Run("MatrixDeterminant", {a}), {1, 0, 0});
  const auto cholesky = Run("Cholesky", {a});
  EXPECT_NE(MessageOf(cholesky.status()).find("matrix 1 of 3 in a is not positive definite"),
            std::string_view::npos)
      << cholesky.status();
  const Tensor nan = Tensor::Of<float>({1, 1}, {std::nanf("")});
  EXPECT_FALSE(Run("Cholesky", {nan}).ok());
}

TEST_P(LinalgTest, EmptyMatrices) {
  ExpectNear(Run("MatrixDeterminant", {Tensor(kFloat32, {2, 0, 0})}), {1, 1});
  ExpectNear(Run("MatrixInverse", {Tensor(kFloat32, {2, 0, 0})}), {});
  ExpectNear(Run("MatrixInverse", {Tensor(kFloat32, {0, 3, 3})}), {});
  ExpectNear(Run("MatrixSolve", {Tensor::Zeros(kFloat32, {2, 2}), Tensor(kFloat32, {2, 0})}), {});
}

INSTANTIATE_TEST_SUITE_P(Kinds, LinalgTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

TEST(LinalgShapes, SquareMatricesOnly) {
  Graph graph;
  try {
    MatrixInverse(Placeholder(graph, kFloat32, {4, 2, 3}, "a"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a is float32 [4, 2, 3]; expected square matrices"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
