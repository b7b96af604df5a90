#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/random.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

class ArrayOpsTest : public ::testing::Test {
 protected:
  Output Input(const Shape& shape, DType dtype = kFloat32) {
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
      if (start == std::string::npos) return text;
      return text.substr(start + 3, end == std::string::npos ? end : end - start - 3);
    }
    return "no error";
  }

  Graph graph_;
};

TEST_F(ArrayOpsTest, Reshape) {
  EXPECT_EQ(Reshape(Input({6, 4}), {-1, 8}).shape(), (Shape{3, 8}));
  EXPECT_EQ(Reshape(Input({-1, 28, 28}), {-1, 784}).shape(), (Shape{-1, 784}));
  EXPECT_EQ(Reshape(Input({6, 4}), ShapeOf(Input({2, -1}))).shape(), (Shape{2, 12}));
  EXPECT_EQ(Reshape(Input({0, 4}), {-1, 2}).shape(), (Shape{0, 2}));
  EXPECT_EQ(ErrorOf([&] {
              Reshape(Input({6, 4}), {5, 5});
            }),
            "x is [6, 4] with 24 elements, shape [5, 5] has 25");
  EXPECT_EQ(ErrorOf([&] {
              Reshape(Input({6, 4}), {-1, -1});
            }),
            "shape has 2 dimensions of -1; at most one may be left open");
  EXPECT_EQ(ErrorOf([&] {
              Reshape(Input({6, 4}), {-1, 5});
            }),
            "x is [6, 4] with 24 elements, which do not divide into shape [?, 5]");
  EXPECT_EQ(ErrorOf([&] {
              Reshape(Input({0}), {-1, 0});
            }),
            "the -1 in shape cannot be told from x, [0], because another dimension is 0");
}

TEST_F(ArrayOpsTest, ReshapeSeesThroughPartsOfAShape) {
  const Output x = Input({-1, -1, 8});
  const auto part = [&](int64_t from, int64_t count) {
    return Slice(ShapeOf(x), std::vector<int64_t>{from}, std::vector<int64_t>{count});
  };
  const auto reshaped = [&](Output front, std::vector<int64_t> rest) {
    const Output back =
        Constant(graph_, Tensor::Of<int64_t>({int64_t(rest.size())}, std::span(rest)));
    return Reshape(Input({-1, 16}), Concat({front, back}, 0)).shape();
  };
  EXPECT_EQ(reshaped(part(0, 2), {16}), (Shape{-1, -1, 16}));
  EXPECT_EQ(reshaped(part(2, 1), {2, -1}), (Shape{8, 2, -1}));
  EXPECT_EQ(reshaped(part(1, -1), {2}), (Shape{-1, 8, 2}));
  EXPECT_EQ(reshaped(part(3, 0), {16}), (Shape{16}));
}

TEST_F(ArrayOpsTest, SqueezeExpandFillRange) {
  EXPECT_EQ(Squeeze(Input({1, 3, 1})).shape(), (Shape{3}));
  EXPECT_EQ(Squeeze(Input({1, 3, 1}), {-1}).shape(), (Shape{1, 3}));
  EXPECT_FALSE(Squeeze(Input({1, -1})).shape().has_rank());
  EXPECT_EQ(ErrorOf([&] {
              Squeeze(Input({1, 3}), {1});
            }),
            "x is [1, 3]; its dimension 1 is 3, and only one of 1 can be removed");
  EXPECT_EQ(ExpandDims(Input({2, 3}), -1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(Fill(ShapeOf(Input({-1, 3})), 1.0f).shape(), (Shape{-1, 3}));
  EXPECT_EQ(Fill(ShapeOf(Input({-1, 3})), 1.0f).dtype(), kFloat32);
  EXPECT_EQ(ErrorOf([&] {
              Fill(Constant(graph_, Tensor::Vector<int64_t>({2, -3})), 1.0f);
            }),
            "dims[1] is -3; expected 0 or more");
  EXPECT_EQ(Range(Constant(graph_, int64_t{10}), 0, -3).shape(), (Shape{4}));
  EXPECT_EQ(ErrorOf([&] { Range(Constant(graph_, int64_t{1}), 5, 0); }),
            "delta is 0; expected another value");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ErrorOf([&] { Range(Constant(graph_, -most), most, 1); }),
            "the range has more than 2^63 values");
}

TEST_F(ArrayOpsTest, ConcatSplitPack) {
  EXPECT_EQ(Concat({Input({2, 3}), Input({-1, 3})}, 0).shape(), (Shape{-1, 3}));
  EXPECT_EQ(Concat({Input({2, -1}), Input({1, 3})}, 0).shape(), (Shape{3, 3}));
  EXPECT_EQ(ErrorOf([&] {
              Concat({Input({2, 3}), Input({2, 4})}, 0);
            }),
            "values[1] is [2, 4], the values before it are [?, 3]; only dimension 0 may differ");
  EXPECT_EQ(ErrorOf([&] { Concat({Input({})}, 0); }),
            "values[0] is a scalar; expected at least 1 dimension, use Pack to join scalars");
  EXPECT_EQ(Split(Input({6, 2}), 0, 3)[2].shape(), (Shape{2, 2}));
  EXPECT_EQ(Split(Input({6, 2}), 0, {6}).size(), 1u) << "one part of 6, not 6 parts";
  EXPECT_EQ(ErrorOf([&] {
              Split(Input({7, 2}), 0, 3);
            }),
            "x is [7, 2]; its dimension 0 of 7 does not divide into 3 equal parts");
  EXPECT_EQ(ErrorOf([&] {
              Split(Input({7}), 0, {3, 3});
            }),
            "the sizes add up to 6, x is [7]; expected 7, its dimension 0");
  EXPECT_EQ(Pack({Input({2}), Input({2})}, -1).shape(), (Shape{2, 2}));
  EXPECT_EQ(ErrorOf([&] {
              Pack({Input({2}), Input({3})});
            }),
            "values[1] is [3], the values before it are [2]; expected equal shapes");
}

TEST_F(ArrayOpsTest, SlicesAndPads) {
  EXPECT_EQ(Slice(Input({4, 5}), {1, 0}, {-1, 3}).shape(), (Shape{3, 3}));
  EXPECT_EQ(Slice(Input({-1, 5}), {1, 0}, {-1, 3}).shape(), (Shape{-1, 3}));
  EXPECT_EQ(ErrorOf([&] {
              Slice(Input({4, 5}), {1, 0}, {4, 3});
            }),
            "begin[0] + size[0] is 1 + 4, x is [4, 5]; expected at most 4");
  EXPECT_EQ(ErrorOf([&] {
              Slice(Input({4, 5}), {1}, {4});
            }),
            "begin has 1 values; expected 2, one for each dimension");
  EXPECT_EQ(
      StridedSlice(Input({-1, 5}), {.begin = {3, 0}, .end = {0, 5}, .shrink_mask = 1}).shape(),
      (Shape{5}));
  EXPECT_EQ(
      ErrorOf([&] { StridedSlice(Input({2}), {.begin = {2}, .end = {0}, .shrink_mask = 1}); }),
      "begin[0] is 2, but dimension 0 of x is 2; expected -2 to 1");
  EXPECT_EQ(Pad(Input({2, -1}), {1, 1, 0, 2}).shape(), (Shape{4, -1}));
  EXPECT_EQ(ErrorOf([&] { Pad(Input({2}), {1, -1}); }), "paddings[1] is -1; expected 0 or more");
  EXPECT_NE(ErrorOf([&] {
              Tile(Input({1 << 30, 1 << 30}), {1 << 30, 1 << 30});
            }).find("the result is too large"),
            std::string::npos);
  EXPECT_EQ(ErrorOf([&] {
              Transpose(Input({2, 3}), {0, 0});
            }),
            "perm[1] is 0; expected each of 0 to 1 once");
}

TEST_F(ArrayOpsTest, GatherFamily) {
  const Output ids = Input({-1, 7}, kInt32);
  EXPECT_EQ(Gather(Input({100, 16}), ids).shape(), (Shape{-1, 7, 16}));
  EXPECT_EQ(Gather(Input({100, 16}), ids, 1).shape(), (Shape{100, -1, 7}));
  EXPECT_EQ(GatherNd(Input({5, 6, 8}), Input({3, 2}, kInt64)).shape(), (Shape{3, 8}));
  EXPECT_EQ(OneHot(ids, 10).shape(), (Shape{-1, 7, 10}));
  EXPECT_EQ(TopK(Input({3, 9}), 2).indices.shape(), (Shape{3, 2}));
  EXPECT_EQ(ErrorOf([&] {
              TopK(Input({3, 9}), 10);
            }),
            "k is 10, x is [3, 9]; expected at most 9, its last dimension");
  EXPECT_EQ(ErrorOf([&] {
              Gather(Input({3, 9}), Input({2}));
            }),
            "indices is float32 [2]; expected int32 or int64");
  EXPECT_EQ(ErrorOf([&] {
              ScatterNd(Input({3, 1}, kInt64), Input({2, 4}), Tensor::Vector<int64_t>({5, 4}));
            }),
            "updates is [2, 4]; expected [3, 4], from indices [3, 1] and shape [5, 4]");
  EXPECT_EQ(DynamicPartition(Input({6, 4}), Input({6}, kInt32), 2)[1].shape(), (Shape{-1, 4}));
}

TEST_F(ArrayOpsTest, Random) {
  EXPECT_EQ(RandomUniform(graph_, {2, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(ErrorOf([&] { RandomUniform(graph_, {2}, {.lo = 1, .hi = 1}); }),
            "lo is 1, hi is 1; expected finite values with lo below hi");
  EXPECT_EQ(ErrorOf([&] { Dropout(Input({2}), 1.0); }),
            "rate is 1; expected 0 or more and less than 1");
  EXPECT_EQ(ErrorOf([&] { Dropout(Input({2}, kInt32), 0.5); }),
            "x is int32 [2]; expected a floating-point type");
  // A node's own seed comes from its name.
  NameScope scope(graph_, "layer");
  const Output a = RandomUniform(graph_, {2}, {}, "a");
  EXPECT_EQ(a.node->name(), "layer/a");
  EXPECT_NE(a.node->attr<int64_t>("node_seed"),
            RandomUniform(graph_, {2}).node->attr<int64_t>("node_seed"));
}

}  // namespace
}  // namespace tutti
