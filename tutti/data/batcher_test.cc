#include "tutti/data/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tutti/base/error.h"

namespace tutti {
namespace {

Tensor Numbers(int64_t count) {
  Tensor t(kInt64, {count});
  std::iota(t.data<int64_t>(), t.data<int64_t>() + count, 0);
  return t;
}

std::vector<int64_t> ValuesOf(const Tensor& t) {
  const auto values = t.values<int64_t>();
  return {values.begin(), values.end()};
}

TEST(EpochOrder, IsAPermutationFixedBySeedAndEpoch) {
  const auto order = EpochOrder(1000, 1, 0);
  EXPECT_EQ(order, EpochOrder(1000, 1, 0));
  EXPECT_NE(order, EpochOrder(1000, 1, 1));
  EXPECT_NE(order, EpochOrder(1000, 2, 0));
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, ValuesOf(Numbers(1000)));
  // The same numbers on every machine, so that a run can be repeated elsewhere.
  EXPECT_THAT(EpochOrder(8, 0, 0), testing::ElementsAre(2, 5, 0, 3, 4, 6, 1, 7));
}

TEST(EpochOrder, EveryPlaceIsEquallyLikely) {
  std::vector<int> first(5);
  for (int64_t epoch = 0; epoch < 10000; ++epoch) ++first[size_t(EpochOrder(5, 3, epoch)[0])];
  for (const int count : first) EXPECT_NEAR(count, 2000, 200);
}

TEST(Batcher, AnEpochShowsEachSampleOnceAndBatchesReachOverItsEnd) {
  Batcher batcher({Numbers(10)}, {.seed = 5});
  std::vector<int64_t> seen;
  for (int i = 0; i < 5; ++i) {
    const auto values = ValuesOf(batcher.Next(4)[0]);
    seen.insert(seen.end(), values.begin(), values.end());
  }
  EXPECT_EQ(batcher.position(), 20);
  std::vector<int64_t> expected = EpochOrder(10, 5, 0);
  const auto second = EpochOrder(10, 5, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(seen, expected);
}

TEST(Batcher, SlicesOfTwoWorkersAreTheBatchOfOne) {
  Batcher whole({Numbers(7)}, {.seed = 2});
  Batcher left({Numbers(7)}, {.seed = 2});
  Batcher right({Numbers(7)}, {.seed = 2});
  for (int64_t step = 0; step < 9; ++step) {
    auto joined = ValuesOf((left.Seek(step * 6), left.Next(2))[0]);
    const auto rest = ValuesOf((right.Seek(step * 6 + 2), right.Next(4))[0]);
    joined.insert(joined.end(), rest.begin(), rest.end());
    EXPECT_EQ(joined, ValuesOf(whole.Next(6)[0])) << step;
  }
}

TEST(Batcher, KeepsColumnsTogether) {
  Tensor wide(kFloat32, {6, 2});
  for (int i = 0; i < 12; ++i) wide.data<float>()[i] = float(i / 2);
  Batcher batcher({wide, Numbers(6)});
  const auto batch = batcher.Next(6);
  EXPECT_EQ(batch[0].shape(), Shape({6, 2}));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(batch[0].data<float>()[2 * i + 1], float(batch[1].data<int64_t>()[i]));
  }
  Batcher in_order({Numbers(3)}, {.shuffle = false});
  EXPECT_THAT(ValuesOf(in_order.Next(5)[0]), testing::ElementsAre(0, 1, 2, 0, 1));
}

TEST(Batcher, RefusesColumnsThatDoNotMatch) {
  EXPECT_THROW(Batcher({}), Error);
  EXPECT_THROW(Batcher({Tensor::Scalar(1.0f)}), Error);
  EXPECT_THROW(Batcher({Tensor(kFloat32, {0, 3})}), Error);
  try {
    Batcher batcher({Numbers(3), Numbers(4)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Batcher: column 1 has 4 rows, column 0 has 3");
  }
  Batcher batcher({Numbers(3)});
  EXPECT_THROW(batcher.Next(0), Error);
  EXPECT_THROW(batcher.Seek(-1), Error);
}

}  // namespace
}  // namespace tutti
