#include "tutti/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/data/epoch_order.h"
#include "tutti/testing/scarce_memory.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

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
  EXPECT_THAT(EpochOrder(8, 0, 0), ElementsAre(2, 5, 0, 3, 4, 6, 1, 7));
}

TEST(EpochOrder, EveryPlaceIsEquallyLikely) {
  std::vector<int> first(5);
  for (int64_t epoch = 0; epoch < 10000; ++epoch) ++first[size_t(EpochOrder(5, 3, epoch)[0])];
  for (const int count : first) EXPECT_NEAR(count, 2000, 200);
}

Dataset Counted(int64_t samples) { return Dataset::FromTensors({{"n", Numbers(samples)}}); }

// What the next batch holds; empty at the end.
std::vector<int64_t> NextOf(DatasetReader& reader) {
  Minibatch batch;
  return reader.Next(&batch) ? ValuesOf(batch.columns.at("n")) : std::vector<int64_t>();
}

std::vector<std::vector<int64_t>> AllOf(const Dataset& dataset, int64_t step = 0) {
  std::vector<std::vector<int64_t>> batches;
  const auto reader = dataset.Read(step);
  Minibatch batch;
  while (reader->Next(&batch)) batches.push_back(ValuesOf(batch.columns.at("n")));
  return batches;
}

TEST(Dataset, GoesThroughItsSamplesOnceAndEndsWithASmallerBatch) {
  EXPECT_THAT(AllOf(Counted(5).Batch(2)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(Dataset, ABatchReachesOverTheEndOfAnEpoch) {
  const auto reader = Counted(10).Shuffle(5).Repeat().Batch(4).Read();
  std::vector<int64_t> seen;
  for (int i = 0; i < 5; ++i) {
    const auto values = NextOf(*reader);
    seen.insert(seen.end(), values.begin(), values.end());
  }
  std::vector<int64_t> expected = EpochOrder(10, 5, 0);
  const auto second = EpochOrder(10, 5, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(seen, expected);
}

TEST(Dataset, TheOrderOfSettingsDoesNotMatter) {
  EXPECT_EQ(AllOf(Counted(9).Batch(4).Repeat(2).Shuffle(3)),
            AllOf(Counted(9).Shuffle(3).Repeat(2).Batch(4)));
}

TEST(Dataset, SlicesOfAllWorkersAreTheBatchOfOne) {
  const Dataset whole = Counted(11).Shuffle(2).Repeat(2).Batch(6);
  for (const int workers : {1, 2, 3, 4, 7}) {
    std::vector<std::vector<int64_t>> joined(4);
    for (int w = 0; w < workers; ++w) {
      const auto slices = AllOf(whole.Shard(w, workers));
      ASSERT_EQ(slices.size(), 4u) << "every worker takes part in every step";
      for (size_t t = 0; t < slices.size(); ++t) {
        joined[t].insert(joined[t].end(), slices[t].begin(), slices[t].end());
      }
    }
    EXPECT_EQ(joined, AllOf(whole)) << workers;
  }
}

TEST(Dataset, AWorkerWithoutSamplesGetsEmptyBatches) {
  const auto reader = Counted(1).Batch(4).Shard(0, 3).Read();
  Minibatch batch;
  ASSERT_TRUE(reader->Next(&batch));
  EXPECT_EQ(batch.count, 0);
  EXPECT_EQ(batch.columns.at("n").shape(), Shape({0}));
  EXPECT_FALSE(reader->Next(&batch));
}

TEST(Dataset, GoesOnFromAStep) {
  const Dataset dataset = Counted(10).Shuffle(1).Repeat(3).Batch(4);
  auto all = AllOf(dataset);
  all.erase(all.begin(), all.begin() + 3);
  EXPECT_EQ(AllOf(dataset, 3), all);
  EXPECT_TRUE(AllOf(dataset, int64_t{1} << 60).empty());
}

// Batches of 4 until position 12, then of 5: no sample twice, none left out, and each knows its
// place in its own batch.
TEST(Dataset, GoesOnFromAPositionInBatchesOfAnotherSize) {
  const Dataset dataset = Counted(20).Shuffle(5).Repeat();
  std::vector<int64_t> expected;
  for (const auto& batch : AllOf(Counted(20).Shuffle(5).Repeat(2).Batch(1))) {
    expected.insert(expected.end(), batch.begin(), batch.end());
  }
  for (const int worker : {0, 1}) {
    const auto reader = dataset.Batch(5).Shard(worker, 2).ReadFrom(12);
    for (int64_t begin = 12; begin < 27; begin += 5) {
      Minibatch batch;
      ASSERT_TRUE(reader->Next(&batch));
      const int64_t first = worker == 0 ? 0 : 2, last = worker == 0 ? 2 : 5;
      EXPECT_EQ(batch.position % 5, first);
      EXPECT_EQ(
          ValuesOf(batch.columns.at("n")),
          std::vector<int64_t>(expected.begin() + begin + first, expected.begin() + begin + last));
    }
  }
  EXPECT_THROW(dataset.ReadFrom(-1), Error);
}

TEST(Dataset, PrefetchGivesTheSameBatches) {
  const Dataset dataset = Counted(100).Shuffle(9).Repeat(3).Batch(7);
  EXPECT_EQ(AllOf(dataset.Prefetch(3)), AllOf(dataset));
  const auto unfinished = dataset.Repeat().Prefetch(2).Read();  // ends although nobody reads on
  EXPECT_EQ(NextOf(*unfinished).size(), 7u);
}

TEST(Dataset, ReadsWithoutAThreadWhereNoneCanBeStarted) {
  if (!testing::CanLimitMemory()) GTEST_SKIP() << "a sanitizer needs the addresses";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // a process without memory in reserve
  const auto keep = [](Columns columns) { return columns; };
  const Dataset dataset = Counted(10).Batch(4).Map(keep);
  EXPECT_EXIT(
      {
        testing::LeaveLittleMemory();
        const auto batches = AllOf(dataset.Prefetch(2));
        std::_Exit(batches.size() == 3 && batches[2].size() == 2 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Dataset, MapsRunInOrderAndMustKeepTheSamples) {
  const auto add = [](Columns columns) {
    for (int64_t& v : columns.at("n").values<int64_t>()) v += 1;
    return columns;
  };
  const auto twice = [](Columns columns) {
    for (int64_t& v : columns.at("n").values<int64_t>()) v *= 2;
    return columns;
  };
  EXPECT_THAT(AllOf(Counted(2).Batch(2).Map(add).Map(twice)), ElementsAre(ElementsAre(2, 4)));
  EXPECT_THAT(AllOf(Counted(2).Batch(2)), ElementsAre(ElementsAre(0, 1))) << "its own copy";
  const auto drop = [](Columns columns) {
    columns.at("n") = columns.at("n").Rows(0, 1);
    return columns;
  };
  for (const int ahead : {0, 2}) {
    const auto reader = Counted(4).Batch(4).Map(drop).Prefetch(ahead).Read();
    Minibatch batch;
    try {
      reader->Next(&batch);
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "Dataset: a map function made column \"n\" [1] from 4 samples; it must keep "
                   "their number");
    }
  }
}

TEST(Dataset, KeepsColumnsTogether) {
  Tensor wide(kFloat32, {6, 2});
  for (int i = 0; i < 12; ++i) wide.data<float>()[i] = float(i / 2);
  const auto reader =
      Dataset::FromTensors({{"wide", wide}, {"n", Numbers(6)}}).Shuffle(0).Batch(6).Read();
  Minibatch batch;
  ASSERT_TRUE(reader->Next(&batch));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(batch.columns.at("wide").data<float>()[2 * i + 1],
              float(batch.columns.at("n").data<int64_t>()[i]));
  }
}

TEST(Dataset, RowsThatLieSideBySideAreNotCopied) {
  const Tensor numbers = Numbers(32);
  const Dataset dataset = Dataset::FromTensors({{"n", numbers}});
  Minibatch batch;
  const auto reader = dataset.Batch(16).Shard(1, 2).Read();
  ASSERT_TRUE(reader->Next(&batch));  // 8 to 15, 64 bytes from the start
  EXPECT_EQ(batch.columns.at("n").raw(), numbers.data<int64_t>() + 8);
  // Not on a boundary that kernels can read from; and for a map function, which may write.
  const auto odd = dataset.Batch(6).Read(1);
  ASSERT_TRUE(odd->Next(&batch));
  EXPECT_NE(batch.columns.at("n").raw(), numbers.data<int64_t>() + 6);
  EXPECT_EQ(ValuesOf(batch.columns.at("n")), std::vector<int64_t>({6, 7, 8, 9, 10, 11}));
  const auto mapped = dataset.Batch(16).Map([](Columns columns) { return columns; }).Read();
  ASSERT_TRUE(mapped->Next(&batch));
  EXPECT_NE(batch.columns.at("n").raw(), numbers.raw());
}

TEST(Dataset, RefusesBatchesThatNoMachineHolds) {
  // 2^31 - 1 rows of 64 MB.
  const Dataset wide = Dataset::FromTensors({{"x", Tensor::Zeros(kUInt8, {1, 64 << 20})}});
  const Dataset huge = wide.Repeat().Batch(std::numeric_limits<int32_t>::max());
  try {
    huge.Read();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2147483647 samples of a batch of 2147483647 take"),
              std::string::npos)
        << error.what();
  }
  // What the data has is little, however large the batch may be.
  Minibatch batch;
  ASSERT_TRUE(
      Counted(5).Batch(std::numeric_limits<int32_t>::max()).Shard(1, 2).Read()->Next(&batch));
  EXPECT_EQ(batch.count, 3);
}

TEST(Dataset, NothingIsAlsoADataset) {
  EXPECT_TRUE(AllOf(Counted(0).Repeat().Batch(3)).empty());
  EXPECT_TRUE(AllOf(Counted(3).Repeat(0)).empty());
}

TEST(Dataset, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Dataset::FromTensors({}), Error);
  EXPECT_THROW(Dataset::FromTensors({{"a", Tensor::Scalar(1.0f)}}), Error);
  try {
    Dataset::FromTensors({{"a", Numbers(3)}, {"b", Numbers(4)}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Dataset: column \"b\" has 4 rows, \"a\" has 3");
  }
  EXPECT_THROW(Counted(3).Batch(0), Error);
  EXPECT_THROW(Counted(3).Batch(int64_t{1} << 31), Error);
  EXPECT_THROW(Counted(3).Batch(std::numeric_limits<int64_t>::max()), Error);
  EXPECT_THROW(Counted(3).Shard(2, 2), Error);
  EXPECT_THROW(Counted(3).Repeat(-2), Error);
  EXPECT_THROW(Counted(3).Prefetch(-1), Error);
  EXPECT_THROW(Counted(3).Read(-1), Error);
}

}  // namespace
}  // namespace tutti
