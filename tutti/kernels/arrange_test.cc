#include "tutti/graph/ops/arrange.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/cpu/strided_copy.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti {
namespace {

using testing::Feeds;
using testing::KernelChoice;
using testing::KernelRunner;

// 0, 1, 2, ... in a tensor of the given shape.
Tensor Counting(const Shape& shape) {
  Tensor t(kInt32, shape);
  const auto values = t.values<int32_t>();
  std::iota(values.begin(), values.end(), 0);
  return t;
}

class ArrangeTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  ArrangeTest() { RegisterCpuKernels(); }

  std::vector<int32_t> Values(Output y) {
    const auto result = KernelRunner(GetParam(), 2).Run({}, {y});
    if (!result.ok()) {
      ADD_FAILURE() << MessageOf(result.status());
      return {};
    }
    const auto values = (*result)[0].values<int32_t>();
    return {values.begin(), values.end()};
  }
  std::string ErrorOf(const Feeds& feeds, Output y) {
    const auto result = KernelRunner(GetParam()).Run(feeds, {y});
    return result.ok() ? "no error" : std::string(MessageOf(result.status()));
  }

  Graph graph_;
};

using Ints = std::vector<int32_t>;

TEST_P(ArrangeTest, Transpose) {
  const Output x = Constant(graph_, Counting({2, 3}));
  EXPECT_EQ(Values(Transpose(x)), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(Values(Transpose(x, {0, 1})), (Ints{0, 1, 2, 3, 4, 5}));
  const Output cube = Constant(graph_, Counting({2, 2, 3}));
  EXPECT_EQ(Values(Transpose(cube, {1, 0, 2})), (Ints{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11}));
  EXPECT_EQ(Values(Transpose(cube, {2, 0, 1})), (Ints{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
}

TEST_P(ArrangeTest, ConcatSplitPackUnpack) {
  const Output a = Constant(graph_, Counting({2, 2}));
  const Output b = Constant(graph_, Tensor::Of<int32_t>({2, 1}, {10, 11}));
  EXPECT_EQ(Values(Concat({a, b, a}, 1)), (Ints{0, 1, 10, 0, 1, 2, 3, 11, 2, 3}));
  EXPECT_EQ(Values(Concat({a, a}, -2)), (Ints{0, 1, 2, 3, 0, 1, 2, 3}));
  const auto parts = Split(Constant(graph_, Counting({2, 4})), 1, {1, 3});
  EXPECT_EQ(Values(parts[0]), (Ints{0, 4}));
  EXPECT_EQ(Values(parts[1]), (Ints{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(Values(Split(a, 0, 2)[1]), (Ints{2, 3}));
  EXPECT_EQ(Values(Pack({a, a}, 1)), (Ints{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(Values(Unpack(a, 1)[1]), (Ints{1, 3}));
}

TEST_P(ArrangeTest, Slices) {
  const Output x = Constant(graph_, Counting({3, 4}));
  EXPECT_EQ(Values(Slice(x, {1, 2}, {-1, 2})), (Ints{6, 7, 10, 11}));
  EXPECT_EQ(Values(StridedSlice(x, {.begin = {0, -1}, .end = {3, 0}, .strides = {2, -2}})),
            (Ints{3, 1, 11, 9}));
  EXPECT_EQ(Values(StridedSlice(x, {.begin = {1}, .end = {2}, .shrink_mask = 1})),
            (Ints{4, 5, 6, 7}));
  EXPECT_EQ(
      Values(StridedSlice(
          x, {.begin = {5, 5}, .end = {5, 5}, .strides = {-1, 3}, .begin_mask = 3, .end_mask = 3})),
      (Ints{8, 11, 4, 7, 0, 3}));
  EXPECT_EQ(Values(SliceGrad(Constant(graph_, Counting({1, 2})), Tensor::Vector<int64_t>({2, 3}),
                             Tensor::Vector<int64_t>({1, 1}))),
            (Ints{0, 0, 0, 0, 0, 1}));
}

TEST_P(ArrangeTest, PadTileReverse) {
  const Output x = Constant(graph_, Counting({1, 2}));
  EXPECT_EQ(Values(Pad(x, {1, 0, 0, 2}, 7)), (Ints{7, 7, 7, 7, 0, 1, 7, 7}));
  EXPECT_EQ(Values(Tile(x, {2, 3})), (Ints{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(Values(Reverse(Constant(graph_, Counting({2, 3})), {1})), (Ints{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(Values(Reverse(Constant(graph_, Counting({2, 3})), {0, -1})), (Ints{5, 4, 3, 2, 1, 0}));
}

TEST_P(ArrangeTest, ErrorsOfTheRunNameTheValue) {
  const Output x = Placeholder(graph_, kFloat32, {-1, 4});
  const Output at = Placeholder(graph_, kInt64, {2});
  const Feeds feeds{{x, Tensor::Zeros(kFloat32, {3, 4})}, {at, Tensor::Vector<int64_t>({5, 0})}};
  EXPECT_NE(ErrorOf(feeds, Slice(x, at, Tensor::Vector<int64_t>({1, 1})))
                .find("begin[0] is 5, x is [3, 4]; expected 0 to 3"),
            std::string::npos);
  EXPECT_NE(ErrorOf(feeds, Reshape(x, at)).find("x is [3, 4] with 12 elements, shape [5, 0] has 0"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ArrangeTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

// Every element size, shapes around the tile's edges, more than one core: as the plain copy.
TEST(FastStridedCopy, EqualsThePlainOne) {
  testing::Random random(7);
  for (int round = 0; round < 400; ++round) {
    const size_t size = random.Pick<size_t>({1, 2, 4, 8});
    const Shape shape = testing::RandomShape(random, {.max_rank = 4, .max_elements = 40000});
    const auto strides = RowMajorStrides(shape);
    std::vector<int> perm(size_t(shape.rank()));
    std::iota(perm.begin(), perm.end(), 0);
    random.Shuffle(perm);
    StridedCopy copy;
    Shape target = shape;
    for (int i = 0; i < shape.rank(); ++i) {
      target = target.WithDim(i, shape.dim(perm[size_t(i)]));
    }
    const auto target_strides = RowMajorStrides(target);
    for (int i = 0; i < shape.rank(); ++i) {
      copy.Add(target.dim(i), strides[size_t(perm[size_t(i)])], target_strides[size_t(i)]);
    }
    const size_t bytes = size_t(shape.elements()) * size;
    std::vector<std::byte> from(bytes + 1), plain(bytes + 1), fast(bytes + 1);
    for (std::byte& byte : from) byte = std::byte(random.Bits());
    PlainStridedCopy(Team(1), copy, size, from.data(), plain.data());
    FastStridedCopy(Team(2), copy, size, from.data(), fast.data());
    ASSERT_EQ(plain, fast) << "round " << round << ", " << shape.ToString() << ", size " << size;
  }
}

}  // namespace
}  // namespace tutti
