#include "tutti/testing/magnitude.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/gradient_check.h"

namespace tutti::testing {
namespace {

class MagnitudeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  std::vector<double> Of(Output y, const Tensor& x) {
    KernelRunner runner(KernelChoice::kReference);
    const Feeds feeds = {{x_, x}};
    value_ = ValueOrThrow(runner.Run(feeds, std::span(&y, 1))).front();
    return ValueOrThrow(
               MagnitudesOf(runner, feeds, std::span(&y, 1), {}, std::span(&value_, 1), random_))
        .front();
  }

  Graph graph_;
  Output x_ = Placeholder(graph_, kFloat32, {-1}, "x");
  Random random_{3};
  Tensor value_;
};

TEST_F(MagnitudeTest, OfAProductIsItsOwnSize) {
  const auto magnitudes = Of(Mul(x_, 2.0f), Tensor::Vector<float>({1e-6f, 3, 0}));
  EXPECT_NEAR(magnitudes[0], 2e-6, 1e-6);
  EXPECT_NEAR(magnitudes[1], 6, 3);
  EXPECT_EQ(magnitudes[2], 0);
  // A wrong small element is found beside a large one.
  const Tensor wrong = Tensor::Vector<float>({2.1e-6f, 6, 0});
  EXPECT_FALSE(CompareTensors(wrong, value_, 1e-5, magnitudes).ok());
  EXPECT_TRUE(CompareTensors(wrong, value_, 1e-5).ok()) << "relative to the largest";
  EXPECT_TRUE(CompareTensors(value_, value_, 0, magnitudes).ok());
}

TEST_F(MagnitudeTest, OfASumIsThatOfItsTerms) {
  const auto magnitudes = Of(Sum(x_), Tensor::Vector<float>({1000, -999.999f, 1e-4f}));
  EXPECT_GT(magnitudes[0], 100);
  EXPECT_LT(magnitudes[0], 3000);
}

TEST_F(MagnitudeTest, OfWhatIsNotFiniteIsZero) {
  const auto magnitudes = Of(Mul(x_, 2.0f), Tensor::Vector<float>({INFINITY, NAN}));
  EXPECT_EQ(magnitudes, (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace tutti::testing
