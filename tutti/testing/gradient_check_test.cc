#include "tutti/testing/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::testing {
namespace {

TEST(CompareTensorsTest, NamesTheWorstElement) {
  const Tensor expected = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(CompareTensors(expected, expected, 0).ok());
  const Tensor off = Tensor::Of<float>({2, 2}, {1.0001f, 2, 3.1f, 4});
  const auto status = CompareTensors(off, expected, 1e-3);
  EXPECT_NE(MessageOf(status).find("element [1, 0]"), std::string_view::npos) << status;
  EXPECT_TRUE(CompareTensors(off, expected, 0.1).ok());
}

TEST(CompareTensorsTest, TypesShapesAndNaN) {
  const Tensor nan = Tensor::Vector<double>({NAN, INFINITY});
  EXPECT_TRUE(CompareTensors(nan, nan, 0).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<double>({NAN, -INFINITY}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<double>({1, INFINITY}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(nan.Reshape({1, 2}), nan, 1).ok());
  EXPECT_FALSE(CompareTensors(Tensor::Vector<int32_t>({1}), Tensor::Vector<int32_t>({2}), 10).ok());
}

TEST(RandomShapeTest, KeepsItsPromises) {
  Random random(1);
  bool scalar = false, empty = false, odd = false;
  for (int i = 0; i < 500; ++i) {
    const Shape shape = RandomShape(random, {.max_elements = 200});
    EXPECT_LE(shape.elements(), 200);
    scalar = scalar || shape.rank() == 0;
    empty = empty || shape.elements() == 0;
    for (const int64_t dim : shape.dims()) odd = odd || dim == 17;
    EXPECT_GT(RandomShape(random, {.min_rank = 2, .min_dim = 1}).elements(), 0);
  }
  EXPECT_TRUE(scalar && empty && odd);
}

TEST(RandomTensorTest, DistinctAndAwayFromZero) {
  Random random(1);
  const Tensor distinct = RandomDistinct(random, kFloat64, {5, 7});
  std::vector<double> sorted(distinct.values<double>().begin(), distinct.values<double>().end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) EXPECT_GT(sorted[i] - sorted[i - 1], 1.9 / 35);
  const Tensor away = RandomAwayFromZero(random, kFloat32, {100}, 0.25);
  for (const float value : away.values<float>()) EXPECT_GE(std::abs(value), 0.25f);
}

}  // namespace
}  // namespace tutti::testing
