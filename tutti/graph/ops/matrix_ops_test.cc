// What the matrix and image ops infer, and what they say of inputs that do not suit them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/pool.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

using ::testing::StartsWith;

class MatrixOpsTest : public ::testing::Test {
 protected:
  Output Of(const Shape& shape, DType dtype = kFloat32) {
    return Placeholder(graph_, dtype, shape);
  }
  // What follows `Op "name" (file:line): ` and stands before the list of inputs.
  template <typename Action>
  std::string ErrorOf(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      const std::string text = error.what();
      const size_t start = text.find("): ");
      const size_t end = text.find("; inputs: ");
      if (start == std::string::npos || end == std::string::npos) return text;
      return text.substr(start + 3, end - start - 3);
    }
    return "no error";
  }

  Graph graph_;
};

TEST_F(MatrixOpsTest, Conv2D) {
  EXPECT_EQ(Conv2D(Of({-1, 28, 28, 3}), Of({3, 3, 3, 8})).shape(), (Shape{-1, 28, 28, 8}));
  EXPECT_EQ(
      Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 3, 8}), {.strides = {2, 2}, .padding = Padding::kValid})
          .shape(),
      (Shape{2, 4, 4, 8}));
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 4, 8}));
            }),
            "x's number of channels (its dimension 3) is 3, but the filter's dimension 2 is 4; "
            "they must be equal");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({9, 9, 3}), Of({3, 3, 3, 8}));
            }),
            "x is float32 [9, 9, 3]; expected 4 dimensions");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 3}));
            }),
            "filter is float32 [3, 3, 3]; expected 4 dimensions");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}, kUInt8), Of({3, 3, 3, 8}, kUInt8));
            }),
            "x is uint8 [2, 9, 9, 3]; expected a floating-point type");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 3, 8}, kFloat64));
            }),
            "dtypes differ: x is float32 [2, 9, 9, 3], filter is float64 [3, 3, 3, 8]; use Cast on "
            "one of them");
  EXPECT_EQ(
      ErrorOf([&] {
        Conv2D(Of({2, 2, 9, 3}), Of({3, 3, 3, 8}), {.padding = Padding::kValid});
      }),
      "a window of height 3 (dilation 1) does not fit into height 2 with padding VALID; pad more, "
      "or use SAME");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 3, 8}), {.strides = {0, 1}});
            }),
            "strides must be two numbers from 1 on, [height, width]; got [0, 1]");
  EXPECT_EQ(ErrorOf([&] {
              Conv2D(Of({2, 9, 9, 3}), Of({3, 3, 3, 8}), {.pads = {1, 1}});
            }),
            "2 numbers in pads; padding SAME takes none");
}

TEST_F(MatrixOpsTest, DepthwiseConv2D) {
  EXPECT_EQ(DepthwiseConv2D(Of({-1, 9, 9, 3}), Of({3, 3, 3, 2})).shape(), (Shape{-1, 9, 9, 6}));
  EXPECT_EQ(ErrorOf([&] {
              DepthwiseConv2D(Of({2, 9, 9, 3}), Of({3, 3, 2, 2}));
            }),
            "x's number of channels (its dimension 3) is 3, but the filter's dimension 2 is 2; "
            "they must be equal");
  EXPECT_EQ(ErrorOf([&] {
              DepthwiseConv2D(Of({2, 9, 3}), Of({3, 3, 3, 2}));
            }),
            "x is float32 [2, 9, 3]; expected 4 dimensions");
  EXPECT_EQ(ErrorOf([&] {
              DepthwiseConv2D(Of({2, 9, 9, 3}), Of({0, 3, 3, 2}));
            }),
            "the window's height is 0; it must be 1 or more");
  EXPECT_THAT(ErrorOf([&] {
                DepthwiseConv2D(Of({int64_t{1} << 20, 1, 1, int64_t{1} << 40}),
                                Of({1, 1, int64_t{1} << 40, int64_t{1} << 20}));
              }),
              StartsWith("the output is too large: "));
}

TEST_F(MatrixOpsTest, Conv2DTranspose) {
  EXPECT_EQ(Conv2DTranspose(Of({-1, 4, 4, 8}), Of({3, 3, 5, 8}), {.strides = {2, 2}}).shape(),
            (Shape{-1, 8, 8, 5}));
  EXPECT_EQ(Conv2DTranspose(Of({2, 4, 4, 8}), Of({3, 3, 5, 8}),
                            {.strides = {2, 2}, .padding = Padding::kValid})
                .shape(),
            (Shape{2, 9, 9, 5}));
  EXPECT_EQ(ErrorOf([&] {
              Conv2DTranspose(Of({2, 4, 4, 8}), Of({3, 3, 8, 5}));
            }),
            "x's number of channels (its dimension 3) is 8, but the filter's dimension 3 is 5; "
            "they must be equal");
  EXPECT_EQ(ErrorOf([&] {
              Conv2DTranspose(Of({2, 4, 4, 8}), Of({3, 8}));
            }),
            "filter is float32 [3, 8]; expected 4 dimensions");
  EXPECT_EQ(ErrorOf([&] {
              Conv2DTranspose(Of({2, 1, 1, 8}), Of({3, 3, 5, 8}),
                              {.padding = Padding::kExplicit, .pads = {2, 2, 0, 0}});
            }),
            "pads 2 and 2 are more than the height 3 that the windows span");
}

TEST_F(MatrixOpsTest, AvgPool) {
  EXPECT_EQ(AvgPool(Of({-1, 9, 9, 3})).shape(), (Shape{-1, 4, 4, 3}));
  EXPECT_EQ(AvgPool(Of({2, 9, 9, 3}), {.padding = Padding::kSame}).shape(), (Shape{2, 5, 5, 3}));
  EXPECT_EQ(ErrorOf([&] {
              AvgPool(Of({9, 9, 3}));
            }),
            "x is float32 [9, 9, 3]; expected 4 dimensions");
  EXPECT_EQ(ErrorOf([&] {
              AvgPool(Of({2, 9, 9, 3}, kInt32));
            }),
            "x is int32 [2, 9, 9, 3]; expected a floating-point type");
  EXPECT_EQ(ErrorOf([&] {
              AvgPool(Of({2, 9, 1, 3}));
            }),
            "a window of width 2 (dilation 1) does not fit into width 1 with padding VALID; pad "
            "more, or use SAME");
  EXPECT_EQ(ErrorOf([&] {
              AvgPool(Of({2, 9, 9, 3}), {.window = {0, 2}});
            }),
            "window must be two numbers from 1 on, [height, width]; got 2 numbers of which one is "
            "below 1");
  EXPECT_EQ(ErrorOf([&] {
              AvgPool(Of({2, 9, 9, 3}), {.padding = Padding::kExplicit});
            }),
            "0 numbers in pads; padding EXPLICIT takes 4: top, bottom, left, right");
}

TEST_F(MatrixOpsTest, BiasAdd) {
  EXPECT_EQ(BiasAdd(Of({-1, 4, 3}), Of({3})).shape(), (Shape{-1, 4, 3}));
  EXPECT_EQ(ErrorOf([&] {
              BiasAdd(Of({-1, 4}), Of({3}));
            }),
            "x's last dimension is 4, but the size of bias is 3; they must be equal");
  EXPECT_EQ(ErrorOf([&] { BiasAdd(Of({}), Of({3})); }),
            "x is float32 []; expected at least 1 dimension");
  EXPECT_EQ(ErrorOf([&] {
              BiasAdd(Of({2, 3}), Of({1, 3}));
            }),
            "bias is float32 [1, 3]; expected 1 dimension");
  EXPECT_EQ(ErrorOf([&] {
              BiasAdd(Of({2, 3}), Of({3}, kFloat64));
            }),
            "dtypes differ: x is float32 [2, 3], bias is float64 [3]; use Cast on one of them");
}

TEST_F(MatrixOpsTest, BatchMatMul) {
  EXPECT_EQ(BatchMatMul(Of({-1, 5, 2, 3}), Of({7, 5, 3, 4})).shape(), (Shape{7, 5, 2, 4}));
  EXPECT_EQ(
      BatchMatMul(Of({5, 3, 2}), Of({5, 4, 3}), {.transpose_a = true, .transpose_b = true}).shape(),
      (Shape{5, 2, 4}));
  EXPECT_EQ(ErrorOf([&] {
              BatchMatMul(Of({5, 2, 3}), Of({5, 4, 3}));
            }),
            "inner dimensions differ: a is [5, 2, 3], b is [5, 4, 3]; a's dimension 2 must equal "
            "b's dimension 1");
  EXPECT_EQ(ErrorOf([&] {
              BatchMatMul(Of({5, 2, 3}), Of({5, 3, 4}), {.transpose_b = true});
            }),
            "inner dimensions differ: a is [5, 2, 3], b is [5, 3, 4]; a's dimension 2 must equal "
            "b's dimension 2");
  EXPECT_EQ(ErrorOf([&] {
              BatchMatMul(Of({5, 2, 3}), Of({6, 3, 4}));
            }),
            "leading dimensions differ: a is [5, 2, 3], b is [6, 3, 4]");
  EXPECT_EQ(ErrorOf([&] {
              BatchMatMul(Of({5, 2, 3}), Of({3, 4}));
            }),
            "leading dimensions differ: a is [5, 2, 3], b is [3, 4]");
  EXPECT_EQ(ErrorOf([&] {
              BatchMatMul(Of({3}), Of({3, 4}));
            }),
            "a is float32 [3]; expected at least 2 dimensions");
}

}  // namespace
}  // namespace tutti
