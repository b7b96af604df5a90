// Accumulators.
#include "tutti/kernels/waiting/sync_under_test.h"

namespace tutti {
namespace {

class AccumulatorTest : public SyncTest {
 protected:
  Output accumulator_ = Accumulator(graph_, kFloat32, {3, 1}, "acc");
  Node* apply_ =
      AccumulatorApply(accumulator_, Integer(), Integer(), Placeholder(graph_, kFloat32, {3, 1}));
  Node* apply_rows_ =
      AccumulatorApplyRows(accumulator_, Integer(), Integer(), Placeholder(graph_, kInt32, {-1}),
                           Placeholder(graph_, kFloat32, {-1, 1}));
  Output take_ = AccumulatorTake(accumulator_, Integer(), Placeholder(graph_, kInt64, {-1}));
};

TEST_F(AccumulatorTest, SumsInSlotOrderWhateverTheArrival) {
  // In float32 the order of these three matters.
  const float values[] = {1e8f, -1e8f, 0.25f};
  std::vector<int64_t> arrival = {0, 1, 2};
  int64_t step = 0;
  do {
    NodeUnderTest take(device_, take_);
    take.Start({{}, Number(step), Tensor::Of<int64_t>({3}, {2, 1, 0})});
    for (const int64_t slot : arrival) {
      EXPECT_FALSE(take.finished());
      const float v = values[slot];
      ASSERT_TRUE(NodeUnderTest(device_, *apply_)
                      .Run({{}, Number(step), Number(slot), Tensor::Of<float>({3, 1}, {v, v, v})})
                      .ok());
    }
    ASSERT_TRUE(take.Wait().ok());
    EXPECT_EQ(take.output().values<float>()[0], (1e8f + -1e8f) + 0.25f);
    ++step;
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

TEST_F(AccumulatorTest, RowsAndDenseTogether) {
  const Tensor indices = Tensor::Of<int32_t>({3}, {2, 0, 2});
  const Tensor rows = Tensor::Of<float>({3, 1}, {1, 2, 4});
  NodeUnderTest apply_rows(device_, *apply_rows_);
  ASSERT_TRUE(apply_rows.Run({{}, Number(0), Number(1), indices, rows}).ok());
  ASSERT_TRUE(NodeUnderTest(device_, *apply_)
                  .Run({{}, Number(0), Number(0), Tensor::Of<float>({3, 1}, {10, 20, 30})})
                  .ok());
  NodeUnderTest take(device_, take_);
  ASSERT_TRUE(take.Run({{}, Number(0), Tensor::Of<int64_t>({2}, {0, 1})}).ok());
  EXPECT_TRUE(take.output().BitwiseEquals(Tensor::Of<float>({3, 1}, {12, 20, 35})));

  ASSERT_TRUE(apply_rows.Run({{}, Number(1), Number(5), indices, rows}).ok());
  ASSERT_TRUE(apply_rows
                  .Run({{},
                        Number(1),
                        Number(3),
                        Tensor::Of<int32_t>({1}, {1}),
                        Tensor::Of<float>({1, 1}, {8})})
                  .ok());
  NodeUnderTest take_rows(
      device_,
      AccumulatorTakeRows(accumulator_, Integer(), Placeholder(graph_, kInt64, {-1})).rows);
  ASSERT_TRUE(take_rows.Run({{}, Number(1), Tensor::Of<int64_t>({2}, {5, 3})}).ok());
  EXPECT_TRUE(take_rows.output(0).BitwiseEquals(Tensor::Of<int64_t>({4}, {1, 2, 0, 2})));
  EXPECT_TRUE(take_rows.output(1).BitwiseEquals(Tensor::Of<float>({4, 1}, {8, 1, 2, 4})));
  EXPECT_EQ(MessageOf(apply_rows.Run({{},
                                      Number(2),
                                      Number(0),
                                      Tensor::Of<int32_t>({1}, {3}),
                                      Tensor::Of<float>({1, 1}, {8})})),
            "indices[0] is 3; accumulator \"acc\" is [3, 1] and has rows 0 to 2");
}

TEST_F(AccumulatorTest, LateAndDoubleContributionsAreErrors) {
  const Tensor ones = Tensor::Of<float>({3, 1}, {1, 1, 1});
  NodeUnderTest apply(device_, *apply_), take(device_, take_), other(device_, take_);
  ASSERT_TRUE(apply.Run({{}, Number(4), Number(0), ones}).ok());
  EXPECT_EQ(MessageOf(apply.Run({{}, Number(4), Number(0), ones})),
            "slot 0 has contributed to step 4 of accumulator \"acc\" already");
  other.Start({{}, Number(3), Tensor::Of<int64_t>({1}, {0})});
  ASSERT_TRUE(take.Run({{}, Number(4), Tensor::Of<int64_t>({1}, {0})}).ok());
  EXPECT_EQ(other.Wait().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(MessageOf(apply.Run({{}, Number(4), Number(1), ones})),
            "slot 1 comes too late to step 4: accumulator \"acc\" was taken up to step 4");
  EXPECT_EQ(take.Run({{}, Number(4), Tensor::Of<int64_t>({1}, {0})}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(take.Run({{}, Number(5), Tensor::Of<int64_t>({2}, {1, 1})})),
            "slots name 1 twice");
  take.Start({{}, Number(5), Tensor::Of<int64_t>({1}, {0})});
  take.Cancel();
  EXPECT_EQ(take.Wait().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(take.Run({{}, Number(5), Tensor(kInt64, {0})}).ok()) << "nobody: the sum is 0";
  EXPECT_EQ(take.output().values<float>()[2], 0);
}

TEST_F(AccumulatorTest, AddsWhatIsNextInOrderAsItComes) {
  const Output large = Accumulator(graph_, kFloat32, {1024}, "large");
  NodeUnderTest apply(device_, *AccumulatorApply(large, Integer(), Integer(),
                                                 Placeholder(graph_, kFloat32, {1024})));
  NodeUnderTest take(device_, AccumulatorTake(large, Integer(), Placeholder(graph_, kInt64, {-1})));
  const auto contribute = [&](int64_t slot) {
    Tensor values(kFloat32, {1024});
    for (float& v : values.values<float>()) v = float(1 << slot);
    ASSERT_TRUE(apply.Run({{}, Number(0), Number(slot), values}).ok());
  };
  const auto held = [&] { return device_.pool().usage().in_use / 4096; };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1, 2, 3})});
  contribute(0);
  EXPECT_EQ(held(), 1);
  contribute(1);
  EXPECT_EQ(held(), 1) << "added to the first";
  contribute(3);
  EXPECT_EQ(held(), 2) << "not its turn yet";
  EXPECT_FALSE(take.finished());
  contribute(2);
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(held(), 1);
  EXPECT_EQ(take.output().values<float>()[1023], 15);
}

// As a push does that is sent again after a connection was lost.
TEST_F(AccumulatorTest, ARepeatedContributionCountsOnce) {
  const Tensor ones = Tensor::Of<float>({3, 1}, {1, 1, 1});
  NodeUnderTest apply(device_,
                      *AccumulatorApply(accumulator_, Integer(), Integer(),
                                        Placeholder(graph_, kFloat32, {3, 1}), {.once = true}));
  NodeUnderTest take(device_, take_);
  const auto contribute = [&](int64_t slot) {
    return apply.Run({{}, Number(0), Number(slot), ones});
  };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  EXPECT_TRUE(contribute(0).ok());
  EXPECT_TRUE(contribute(0).ok()) << "it is in the sum already";
  EXPECT_TRUE(contribute(1).ok());
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(take.output().values<float>()[0], 2);
  EXPECT_TRUE(contribute(1).ok()) << "the step was taken with it";
  EXPECT_EQ(contribute(2).code(), absl::StatusCode::kFailedPrecondition)
      << "a first contribution that comes too late is no repetition";
}

TEST_F(AccumulatorTest, ACancelledTakeLeavesTheSumToTheNext) {
  NodeUnderTest apply(device_, *apply_), take(device_, take_), other(device_, take_);
  const auto contribute = [&](int64_t slot, float v) {
    ASSERT_TRUE(
        apply.Run({{}, Number(0), Number(slot), Tensor::Of<float>({3, 1}, {v, v, v})}).ok());
  };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  contribute(0, 1);
  take.Cancel();
  EXPECT_EQ(take.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(MessageOf(other.Run({{}, Number(0), Tensor::Vector<int64_t>({1})})),
            "the sum of step 0 of accumulator \"acc\" was begun with slots 0, for a Take that was "
            "cancelled; take it with slots that begin with these");
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  contribute(1, 2);
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(take.output().values<float>()[2], 3);
}

}  // namespace
}  // namespace tutti
