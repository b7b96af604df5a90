#include "tutti/graph/ops/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "tutti/autodiff/gradients.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::Feeds;
using testing::KernelChoice;
using testing::KernelRunner;

class GatherTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  GatherTest() { RegisterCpuKernels(); }

  template <typename T>
  std::vector<T> Values(Output y) {
    const auto result = KernelRunner(GetParam(), 2).Run({}, {y});
    if (!result.ok()) {
      ADD_FAILURE() << MessageOf(result.status());
      return {};
    }
    const auto values = (*result)[0].values<T>();
    return {values.begin(), values.end()};
  }
  absl::Status ErrorOf(Output y) { return KernelRunner(GetParam()).Run({}, {y}).status(); }
  Output Floats(const Shape& shape, std::initializer_list<float> values) {
    return Constant(graph_, Tensor::Of<float>(shape, values));
  }
  Output Indices(std::initializer_list<int64_t> values) {
    return Constant(graph_, Tensor::Vector<int64_t>(values));
  }

  Graph graph_;
};

using FloatList = std::vector<float>;
using Ints = std::vector<int64_t>;

// In bfloat16, which has 8 bits, 256 + 1 is 256.
TEST_P(GatherTest, SumsOf16BitFloatsAreRoundedOnce) {
  constexpr int64_t kCount = 1000;
  Tensor ones(kBFloat16, {kCount});
  for (BFloat16& one : ones.values<BFloat16>()) one = BFloat16(1.0f);
  const Output x = Constant(graph_, ones);
  const Output zeros = Constant(graph_, Tensor::Zeros(kInt64, {kCount}));
  const Output rows = Constant(graph_, Tensor::Zeros(kInt64, {kCount, 1}));
  const Tensor one = Tensor::Vector<int64_t>({1});
  for (const Output& sum :
       {GatherGrad(x, zeros, one, 0), ScatterNd(rows, x, one), UnsortedSegmentSum(x, zeros, 1)}) {
    const auto result = KernelRunner(GetParam(), 2).Run({}, {sum});
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    EXPECT_EQ(float((*result)[0].data<BFloat16>()[0]), kCount) << sum.node->Describe();
  }
}

TEST_P(GatherTest, GatherAndItsGradient) {
  const Output params = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Values<float>(Gather(params, Indices({2, 0, 2}))), (FloatList{5, 6, 1, 2, 5, 6}));
  EXPECT_EQ(Values<float>(Gather(params, Indices({1, 1}), 1)), (FloatList{2, 2, 4, 4, 6, 6}));
  EXPECT_EQ(Values<float>(GatherGrad(Floats({3, 2}, {1, 2, 3, 4, 5, 6}), Indices({1, 1}),
                                     Tensor::Vector<int64_t>({3, 2}), 1)),
            (FloatList{0, 3, 0, 7, 0, 11}));
}

TEST_P(GatherTest, OutOfRangeNamesIndexPositionAndLimit) {
  const Output params = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Output bad = Constant(graph_, Tensor::Of<int32_t>({2, 2}, {0, 1, 3, 2}));
  const absl::Status gather = ErrorOf(Gather(params, bad));
  EXPECT_EQ(gather.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(MessageOf(gather).find("indices[1, 0] is 3; expected 0 to 2"), std::string::npos)
      << gather;
  EXPECT_NE(MessageOf(ErrorOf(GatherNd(params, bad))).find("indices[1, 0] is 3; expected 0 to 2"),
            std::string::npos);
  EXPECT_NE(MessageOf(ErrorOf(UnsortedSegmentSum(params, Indices({0, -1, 1}), 2)))
                .find("ids[1] is -1; expected 0 to 1"),
            std::string::npos);
  EXPECT_NE(MessageOf(ErrorOf(DynamicPartition(params, Indices({0, 1, 2}), 2)[0]))
                .find("partitions[2] is 2; expected 0 to 1"),
            std::string::npos);
  EXPECT_NE(MessageOf(ErrorOf(Gather(Floats({0, 2}, {}), Indices({0}))))
                .find("indices[0] is 0, but there is nothing to index: the dimension is 0"),
            std::string::npos);
}

TEST_P(GatherTest, NdOps) {
  const Output params = Floats({2, 2}, {1, 2, 3, 4});
  const Output pairs = Constant(graph_, Tensor::Of<int64_t>({2, 2}, {1, 0, 0, 1}));
  EXPECT_EQ(Values<float>(GatherNd(params, pairs)), (FloatList{3, 2}));
  const Output rows = Constant(graph_, Tensor::Of<int64_t>({3, 1}, {1, 1, 0}));
  EXPECT_EQ(Values<float>(ScatterNd(rows, Floats({3, 2}, {1, 2, 3, 4, 5, 6}),
                                    Tensor::Vector<int64_t>({2, 2}))),
            (FloatList{5, 6, 4, 6}));
  EXPECT_EQ(
      Values<float>(GatherLast(params, Constant(graph_, Tensor::Of<int32_t>({2, 1}, {1, 0})))),
      (FloatList{2, 3}));
  EXPECT_EQ(Values<float>(UnsortedSegmentSum(params, Indices({2, 2}), 3)),
            (FloatList{0, 0, 0, 0, 4, 6}));
}

TEST_P(GatherTest, OneHot) {
  EXPECT_EQ(Values<float>(OneHot(Indices({1, -1, 3}), 3)), (FloatList{0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Values<int64_t>(OneHot(Indices({1, 0}), 3,
                                   {.axis = 0, .dtype = kInt64, .on_value = 5, .off_value = -1})),
            (Ints{-1, 5, 5, -1, -1, -1}));
}

TEST_P(GatherTest, UniqueKeepsTheOrderOfFirstAppearance) {
  const UniqueResult unique = Unique(Floats({6}, {3, 1, 3, -0.0f, 0.0f, 1}));
  EXPECT_EQ(Values<float>(unique.values), (FloatList{3, 1, 0}));
  EXPECT_EQ(Values<int64_t>(unique.indices), (Ints{0, 1, 0, 2, 2, 1}));
  EXPECT_EQ(Values<int64_t>(unique.counts), (Ints{2, 2, 2}));
  EXPECT_EQ(Values<int64_t>(Unique(Indices({})).values), Ints{});
}

// Many equal values, some NaN and zeros of both signs, rows that are longer than what a selection
// keeps in mind.
TEST_P(GatherTest, TopKIsWhatAStableSortPutsFirst) {
  std::mt19937 random(11);
  for (const auto& [rows, width, k] : {std::array<int64_t, 3>{1, 1, 1},
                                       {3, 200, 1},
                                       {2, 1000, 7},
                                       {5, 300, 100},
                                       {2, 64, 64},
                                       {1, 5000, 2501}}) {
    std::vector<float> x(size_t(rows * width));
    for (float& value : x) {
      const auto draw = int(random() % 40);
      value = draw == 0 ? NAN : draw == 1 ? -0.0f : draw == 2 ? 0.0f : float(draw - 20);
    }
    const TopKResult top = TopK(Constant(graph_, Tensor::Of<float>({rows, width}, x)), k);
    const auto result = KernelRunner(GetParam(), 2).Run({}, {top.values, top.indices});
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    for (int64_t row = 0; row < rows; ++row) {
      const float* const values = x.data() + row * width;
      std::vector<int64_t> order(static_cast<size_t>(width));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        if (std::isnan(values[a])) return !std::isnan(values[b]);
        return values[a] > values[b];
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t expected = order[size_t(i)];
        ASSERT_EQ((*result)[1].data<int64_t>()[row * k + i], expected) << width << ", " << k;
        const float value = (*result)[0].data<float>()[row * k + i];
        ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(values[expected]));
      }
    }
  }
}

TEST_P(GatherTest, TopKIsStableAndPutsNaNFirst) {
  const TopKResult top = TopK(Floats({2, 4}, {1, 3, 3, 2, 0, NAN, 5, INFINITY}), 3);
  EXPECT_EQ(Values<int64_t>(top.indices), (Ints{1, 2, 3, 1, 3, 2}));
  const auto values = Values<float>(top.values);
  EXPECT_EQ(values[2], 2);
  EXPECT_TRUE(std::isnan(values[3]));
}

TEST_P(GatherTest, PartitionAndStitchAreInverse) {
  const Output data = Floats({4, 1}, {10, 11, 12, 13});
  const Output which = Indices({1, 0, 1, 1});
  const auto parts = DynamicPartition(data, which, 3);
  EXPECT_EQ(Values<float>(parts[0]), (FloatList{11}));
  EXPECT_EQ(Values<float>(parts[1]), (FloatList{10, 12, 13}));
  EXPECT_EQ(Values<float>(parts[2]), (FloatList{}));
  const auto places = DynamicPartition(Indices({0, 1, 2, 3}), which, 3);
  EXPECT_EQ(Values<float>(DynamicStitch(places, parts)), (FloatList{10, 11, 12, 13}));
  // The last of equal indices wins; a row that nobody names is zero.
  const Output twice[] = {Indices({0, 3}), Indices({0})};
  const Output values[] = {Floats({2}, {1, 2}), Floats({1}, {7})};
  EXPECT_EQ(Values<float>(DynamicStitch(twice, values)), (FloatList{7, 0, 0, 2}));
  const auto gradients = DynamicStitchGrad(Floats({4}, {1, 2, 3, 4}), twice);
  EXPECT_EQ(Values<float>(gradients[0]), (FloatList{0, 4}));
  EXPECT_EQ(Values<float>(gradients[1]), (FloatList{1}));
}

TEST_P(GatherTest, TheGradientAlongAxisZeroStaysSparse) {
  const Output params = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Output rows = Gather(params, Constant(graph_, Tensor::Of<int64_t>({1, 2}, {2, 2})));
  const auto sparse = SparseGradients(std::span(&rows, 1), std::span(&params, 1))[0];
  ASSERT_TRUE(sparse.sparse());
  EXPECT_EQ(Values<int64_t>(sparse.indices), (Ints{2, 2}));
  EXPECT_EQ(sparse.rows.shape(), (Shape{2, 2}));
  EXPECT_EQ(Values<float>(Gradients(rows, {params})[0]), (FloatList{0, 0, 0, 0, 2, 2}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, GatherTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

}  // namespace
}  // namespace tutti
