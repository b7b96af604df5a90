#include "tutti/train/strategies/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

TEST(MakeBuckets, FollowsTheOrderOfComputationAndTheSizes) {
  Graph graph;
  std::vector<GradientAndVariable> list;
  for (int i = 0; i < 6; ++i) list.push_back({{}, Variable(graph, Zeros({16}))});
  // The last variable's gradient is computed first, as the reverse pass does. 64 bytes each.
  for (int i = 5; i >= 0; --i) list[size_t(i)].gradient.dense = Neg(list[size_t(i)].variable);
  const auto buckets = MakeBuckets(list, {.first_bytes = 1, .bytes = 128});
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_THAT(buckets[0].entries, ElementsAre(5));
  EXPECT_THAT(buckets[1].entries, ElementsAre(4, 3));
  EXPECT_THAT(buckets[2].entries, ElementsAre(2, 1));
  EXPECT_THAT(buckets[3].entries, ElementsAre(0));
  EXPECT_EQ(buckets[1].bytes, 128);
}

TEST(MakeBuckets, TheFirstStaysSmallBesideLargeGradients) {
  Graph graph;
  std::vector<GradientAndVariable> list;
  for (const int64_t elements : {4, 1000, 4}) {
    const Output variable = Variable(graph, Zeros({elements}));
    list.push_back({{.dense = Neg(variable)}, variable});
  }
  const auto buckets = MakeBuckets(list, {.first_bytes = 64, .bytes = 1024});
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_THAT(buckets[0].entries, ElementsAre(0));
  EXPECT_THAT(buckets[1].entries, ElementsAre(1));
  // Where all are to be alike, one is enough.
  EXPECT_THAT(MakeBuckets(list, {.first_bytes = 1024, .bytes = 1024})[0].entries,
              ElementsAre(0, 1));
}

TEST(MakeBuckets, KeepsTypesApartAndLeavesRowsOut) {
  Graph graph;
  const Output a = Variable(graph, Zeros({4}));
  const Output b = Variable(graph, Zeros({4}, kFloat64));
  const Output c = Variable(graph, Zeros({4}));
  const Output rows = Variable(graph, Zeros({4, 2}));
  std::vector<GradientAndVariable> list = {
      {{.dense = Neg(a)}, a}, {{.dense = Neg(b)}, b}, {{.dense = Neg(c)}, c}, {{}, a}};
  list.push_back({{.indices = Placeholder(graph, kInt32, {-1}, "i"),
                   .rows = Placeholder(graph, kFloat32, {-1, 2}, "r")},
                  rows});
  const auto buckets = MakeBuckets(list, {});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_THAT(buckets[0].entries, ElementsAre(0, 2));
  EXPECT_EQ(buckets[1].dtype, kFloat64);
  EXPECT_THAT(buckets[1].entries, ElementsAre(1));
}

}  // namespace
}  // namespace tutti
