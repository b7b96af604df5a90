#include "tutti/placement/fit_speed.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::placement {
namespace {

WorkSample Sample(const KindSpeed& speed, double operations, double bytes) {
  const double memory = MemoryPart(bytes);
  return {operations, bytes,
          operations * speed.per_operation + bytes * (1 - memory) * speed.per_byte_cached +
              bytes * memory * speed.per_byte_memory};
}

void ExpectNear(const KindSpeed& found, const KindSpeed& wanted) {
  EXPECT_NEAR(found.per_operation, wanted.per_operation, 1e-6 * wanted.per_operation);
  EXPECT_NEAR(found.per_byte_cached, wanted.per_byte_cached, 1e-6 * wanted.per_byte_cached);
  EXPECT_NEAR(found.per_byte_memory, wanted.per_byte_memory, 1e-6 * wanted.per_byte_memory);
}

TEST(FitSpeed, FindsWhatTheSamplesWereMadeFrom) {
  for (const KindSpeed speed : {KindSpeed{8e-12, 2e-11, 9e-11}, KindSpeed{8e-12, 0, 0},
                                KindSpeed{0, 3e-11, 5e-11}, KindSpeed{7e-12, 0, 6e-11}}) {
    std::vector<WorkSample> samples;
    for (const double bytes : {4e3, 1e5, 2e6, 6e7}) {
      samples.push_back(Sample(speed, 3 * bytes, bytes));
      samples.push_back(Sample(speed, 1e8, bytes));
    }
    ExpectNear(FitSpeed(samples), speed);
  }
}

// A byte cannot take less than no time, whatever the noise.
TEST(FitSpeed, NoPartIsNegative) {
  const WorkSample samples[] = {{1e8, 1e5, 1e-3}, {1e8, 1e7, 0.5e-3}, {2e8, 3e7, 0.9e-3}};
  const KindSpeed speed = FitSpeed(samples);
  EXPECT_GT(speed.per_operation, 0);
  EXPECT_GE(speed.per_byte_cached, 0);
  EXPECT_GE(speed.per_byte_memory, 0);
}

// Passes over memory have no operations.
TEST(FitSpeed, WhatNoSampleHasStaysZero) {
  const WorkSample samples[] = {{0, 1e5, 1e-6}, {0, 6e7, 3e-3}};
  const KindSpeed speed = FitSpeed(samples);
  EXPECT_EQ(speed.per_operation, 0);
  EXPECT_NEAR(speed.per_byte_cached, 1e-11, 1e-17);
  EXPECT_NEAR(speed.per_byte_memory, 5e-11, 1e-17);
}

}  // namespace
}  // namespace tutti::placement
