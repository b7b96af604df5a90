#include "tutti/train/strategies/bucket_size.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// Links with a latency and a bandwidth.
AllReduceSeconds Links(double latency, double bandwidth) {
  return [=](int64_t bytes) { return latency + double(bytes) / bandwidth; };
}

constexpr int64_t kM = 1 << 20;

TEST(ChooseBucketSize, GrowsWithWhatAnOperationCosts) {
  // sqrt(K l B): 2 MB, and 9 MB at twenty times the latency.
  EXPECT_EQ(ChooseBucketSize(50 * kM, Links(1e-3, 80e6)).bytes, 2 * kM);
  EXPECT_EQ(ChooseBucketSize(50 * kM, Links(20e-3, 80e6)).bytes, 8 * kM);
  EXPECT_EQ(ChooseBucketSize(500 * kM, Links(1e-3, 80e6)).bytes, 8 * kM);
}

TEST(ChooseBucketSize, TheFirstIsSmallWhereManyFollow) {
  const BucketOptions many = ChooseBucketSize(50 * kM, Links(1e-3, 80e6));
  EXPECT_EQ(many.first_bytes, 64 << 10);
  const BucketOptions few = ChooseBucketSize(300 << 10, Links(1e-6, 10e9));
  EXPECT_EQ(few.first_bytes, few.bytes);
}

TEST(ChooseBucketSize, HasBounds) {
  EXPECT_EQ(ChooseBucketSize(int64_t{1} << 40, Links(1, 1e9)).bytes, 64 * kM);
  EXPECT_EQ(ChooseBucketSize(10, Links(1e-6, 1e9)).bytes, 64 << 10);
  EXPECT_EQ(ChooseBucketSize(0, Links(1e-6, 1e9)).bytes, 64 << 10);
}

TEST(ChooseBucketSize, IsTheDefaultWhereNothingIsKnown) {
  EXPECT_EQ(ChooseBucketSize(50 * kM, [](int64_t) { return std::nullopt; }), BucketOptions());
}

}  // namespace
}  // namespace tutti
