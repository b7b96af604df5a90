#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tools/tutti/bench/allreduce_data.h"
#include "tools/tutti/bench/allreduce_plan.h"

namespace tutti::tools {
namespace {

using collective::Reduction;
using collective::Wire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kCount = 1000;  // no whole number of rows

std::vector<float> Written(const FreshData& data, int64_t call) {
  std::vector<float> values(kCount);
  data.Write(values.data(), kCount, call);
  return values;
}

// The sum over all ranks, made by hand.
std::vector<float> SumOf(int ranks, int64_t call) {
  std::vector<float> sum(kCount, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> own =
        Written(FreshData(rank, ranks, Reduction::kSum, Wire::kAsIs), call);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  return sum;
}

TEST(FreshData, AcceptsTheSumOfTheCallAndNothingElse) {
  const FreshData data(1, 3, Reduction::kSum, Wire::kAsIs);
  std::vector<float> sum = SumOf(3, 7);
  EXPECT_TRUE(data.Check(sum.data(), kCount, 7).ok());
  EXPECT_FALSE(data.Check(sum.data(), kCount, 8).ok()) << "the result of another call";
  EXPECT_FALSE(data.Check(SumOf(2, 7).data(), kCount, 7).ok()) << "a rank is missing";
  EXPECT_FALSE(data.Check(Written(data, 7).data(), kCount, 7).ok()) << "nothing was reduced";
  sum.back() += 1;
  EXPECT_THAT(data.Check(sum.data(), kCount, 7).message(), HasSubstr("element 999 of 1000 is "));
  sum.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(data.Check(sum.data(), kCount, 7).ok());
}

TEST(FreshData, ABroadcastBringsTheFirstRanksDataToAll) {
  const FreshData first(0, 1, Reduction::kSum, Wire::kAsIs, true);
  const FreshData second(1, 1, Reduction::kSum, Wire::kAsIs, true);
  const std::vector<float> sent = Written(first, 7);
  EXPECT_TRUE(second.Check(sent.data(), kCount, 7).ok());
  EXPECT_FALSE(second.Check(Written(second, 7).data(), kCount, 7).ok()) << "nothing came";
  EXPECT_FALSE(second.Check(Written(first, 6).data(), kCount, 7).ok()) << "of another call";
}

TEST(FreshData, EveryCallHasOtherNumbersInEveryElement) {
  const FreshData data(0, 2, Reduction::kSum, Wire::kAsIs);
  const std::vector<float> one = Written(data, 1), two = Written(data, 2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], two[i]);
}

TEST(FreshData, ChecksOtherReductions) {
  const std::vector<float> first = Written(FreshData(0, 2, Reduction::kMax, Wire::kAsIs), 3);
  const std::vector<float> second = Written(FreshData(1, 2, Reduction::kMax, Wire::kAsIs), 3);
  const auto accepts = [&](Reduction reduction, const std::vector<float>& result) {
    return FreshData(0, 2, reduction, Wire::kAsIs).Check(result.data(), kCount, 3).ok();
  };
  EXPECT_TRUE(accepts(Reduction::kMax, second));
  EXPECT_FALSE(accepts(Reduction::kMax, first));
  EXPECT_TRUE(accepts(Reduction::kMin, first));
  EXPECT_FALSE(accepts(Reduction::kMin, second));
}

TEST(FreshData, ServersApartGetNoResult) {
  const FreshData data(2, 2, Reduction::kSum, Wire::kAsIs);
  EXPECT_TRUE(data.Check(Written(data, 1).data(), kCount, 1).ok());
}

TEST(Sizes, AreWholeNumbersOfElements) {
  EXPECT_THAT(SizesOf({.bytes = {"4", "64K"}}).value(), ElementsAre(4, 64000));
  EXPECT_EQ(SizesOf({.bytes = {"4", "7"}}).status().message(),
            "--bytes: 7 bytes are no whole number of float32 elements; expected a multiple of 4, "
            "as 4");
  EXPECT_FALSE(SizesOf({.bytes = {"0"}}).ok());
}

TEST(Memory, OfTheLargestSizeMustBeThere) {
  const AllReduceBench bench{.bytes = {"4", "200G", "1M"}};
  EXPECT_TRUE(CheckFits(bench, 2, int64_t{400'000'000'000}).ok());
  EXPECT_EQ(CheckFits(bench, 2, int64_t{24'000'000'000}).message(),
            "--bytes: 200 GB for 2 ranks of this host need 400 GB of memory, and 24 GB are "
            "available; ask for at most 12 GB a rank, or for fewer ranks");
  // Where everybody sends all to all, memory for what comes is needed too.
  const AllReduceBench exchange{.bytes = {"1G"}, .algorithm = "exchange"};
  EXPECT_TRUE(CheckFits(exchange, 4, int64_t{16'000'000'000}).ok());
  EXPECT_FALSE(CheckFits(exchange, 4, int64_t{15'000'000'000}).ok());
}

}  // namespace
}  // namespace tutti::tools
