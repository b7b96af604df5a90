#include "tutti/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

TEST(Float16, RoundTripsEveryBitPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = FloatFromFloat16Bits(uint16_t(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(Float16BitsFromFloat(value), bits);
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(float(Float16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(float(Float16(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);
  EXPECT_TRUE(std::isinf(float(Float16(65520.0f))));
  EXPECT_EQ(float(Float16(65519.0f)), 65504.0f);
  EXPECT_EQ(float(BFloat16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_TRUE(std::isnan(float(BFloat16(std::nanf("")))));
}

TEST(Shape, BroadcastsLikeNumPy) {
  EXPECT_EQ(BroadcastShapes({2, 1, 3}, {4, 1}), (Shape{2, 4, 3}));
  EXPECT_EQ(BroadcastShapes({}, {5}), (Shape{5}));
  EXPECT_EQ(BroadcastShapes({0}, {1}), (Shape{0}));
  EXPECT_FALSE(BroadcastShapes({2}, {3}).has_value());
  EXPECT_EQ(BroadcastShapes({-1, 3}, {4, 3}), (Shape{4, 3}));
  EXPECT_EQ(BroadcastShapes({-1, 3}, {1, 3}), (Shape{-1, 3}));
}

TEST(Shape, RefusesWhatCannotBe) {
  std::string why;
  const int64_t huge[] = {int64_t{1} << 32, int64_t{1} << 32};
  EXPECT_FALSE(Shape::Make(huge, &why).has_value());
  EXPECT_EQ(why, "the product of the dimensions of shape [4294967296, 4294967296] passes 2^63");
  const int64_t negative[] = {2, -7};
  EXPECT_FALSE(Shape::Make(negative, &why).has_value());
  EXPECT_EQ(why, "dimension 1 of shape [2, -7] is -7; expected 0 or more, or -1 for unknown");
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(Shape, ReadsOnlyDimensionsThatAreThere) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.dim(-2), 2);
  for (const int place :
       {2, -3, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    EXPECT_THROW(shape.dim(place), Error) << place;
    EXPECT_THROW(shape[place], Error) << place;
    EXPECT_THROW(Shape().dim(place), Error) << place;
    EXPECT_THROW(Shape::UnknownRank().dim(place), Error) << place;
  }
  for (const int place : {0, -1}) EXPECT_THROW(Shape::UnknownRank().dim(place), Error) << place;
  try {
    shape.dim(2);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Shape::dim: there is no dimension 2 in [2, 3]");
  }
}

TEST(Shape, ChangesOnlyDimensionsThatAreThere) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape.WithDim(-1, 5), (Shape{2, 5}));
  EXPECT_EQ(shape.WithoutDim(-2), (Shape{3}));
  EXPECT_EQ(shape.WithInserted(2, 5), (Shape{2, 3, 5}));
  EXPECT_EQ(shape.WithInserted(-1, 5), (Shape{2, 3, 5}));
  for (const int place : {2, -3, 1 << 30, -(1 << 30)}) {
    EXPECT_THROW(shape.WithDim(place, 5), Error) << place;
    EXPECT_THROW(shape.WithoutDim(place), Error) << place;
  }
  EXPECT_THROW(shape.WithInserted(3, 5), Error);
  EXPECT_THROW(shape.WithInserted(-4, 5), Error);
  EXPECT_THROW(shape.WithDim(0, -7), Error);
  EXPECT_FALSE(Shape::UnknownRank().WithDim(0, 5).has_rank());
  EXPECT_FALSE(Shape::UnknownRank().WithoutDim(0).has_rank());
  EXPECT_FALSE(Shape::UnknownRank().WithInserted(0, 5).has_rank());
}

TEST(Shape, MultipliesDimensionsWithoutOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto product = [](std::initializer_list<int64_t> dims) {
    return ProductOf(std::span(dims.begin(), dims.size()));
  };
  EXPECT_EQ(product({}), 1);
  EXPECT_EQ(product({2, 3, 4}), 24);
  EXPECT_EQ(product({kHuge, 8}), INT64_MAX);
  EXPECT_EQ(product({kHuge, 8, 0}), 0);
  EXPECT_EQ(product({0, kHuge, kHuge}), 0);
  EXPECT_EQ((Shape{0, kHuge, 8}).elements(), 0);
}

TEST(Shape, EditsDimensions) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.WithoutDim(-2), (Shape{2, 4}));
  EXPECT_EQ(shape.WithInserted(-1, 1), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(shape.WithInserted(0, 1), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(shape.WithDim(-1, 9), (Shape{2, 3, 9}));
  EXPECT_EQ(Shape::UnknownRank().ToString(), "[...]");
  EXPECT_EQ((Shape{-1, 10}).ToString(), "[?, 10]");
}

TEST(Tensor, ViewsShareBytes) {
  Tensor t = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  Tensor rows = t.Rows(1, 3);
  rows.values<float>()[0] = 30;
  EXPECT_EQ(t.values<float>()[2], 30);
  EXPECT_EQ(t.Reshape({6}).values<float>()[2], 30);
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % kBufferAlignment, 0u);
}

TEST(Tensor, SaysWhatDoesNotFit) {
  const Tensor t = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  try {
    t.Reshape({3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot view a tensor of shape [2, 2] as [3]: 4 elements against 3");
  }
  EXPECT_THROW(t.values<int32_t>(), Error);
  EXPECT_THROW(t.scalar<float>(), Error);
  EXPECT_THROW(t.Rows(1, 3), Error);
  EXPECT_THROW(Tensor(kFloat32, Shape{-1}), Error);
  EXPECT_THROW(Tensor(kFloat64, Shape{int64_t{1} << 60}), Error);
}

TEST(Tensor, Prints) {
  EXPECT_EQ(Tensor::Of<float>({2}, {1.5f, 2}).ToString(), "float32 [2] {1.5, 2}");
  EXPECT_EQ(Tensor::Scalar<uint64_t>(18446744073709551615u).ToString(),
            "uint64 [] {18446744073709551615}");
  EXPECT_EQ(Tensor::Vector<int32_t>({1, 2, 3, 4, 5}).ToString(4), "int32 [5] {1, 2, ..., 4, 5}");
  EXPECT_EQ(Tensor(kFloat32, Shape{0, 3}).ToString(), "float32 [0, 3] {}");
}

}  // namespace
}  // namespace tutti
