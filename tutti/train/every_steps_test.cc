#include "tutti/train/every_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tutti/train/checkpoints/save_schedule.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Those of `steps` after which it is due.
std::vector<int64_t> DueAt(EverySteps every, const std::vector<int64_t>& steps) {
  std::vector<int64_t> due;
  for (const int64_t step : steps) {
    if (every.Reached(step)) due.push_back(step);
  }
  return due;
}

TEST(EveryStepsTest, IsDueAtMultiplesInLockstep) {
  EXPECT_THAT(DueAt(EverySteps(3), {1, 2, 3, 4, 5, 6, 7}), ElementsAre(3, 6));
  EXPECT_THAT(DueAt(EverySteps(1), {1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(DueAt(EverySteps(0), {1, 2, 3}), IsEmpty());
}

TEST(EveryStepsTest, IsDueOnceWhenMultiplesArePassed) {
  EXPECT_THAT(DueAt(EverySteps(10), {2, 9, 11, 13, 19, 20, 22, 47, 49}), ElementsAre(11, 20, 47));
}

TEST(EveryStepsTest, CountsFromWhereATrainingBegins) {
  EverySteps every(10);
  every.Begin(25);
  EXPECT_THAT(DueAt(every, {26, 29, 32}), ElementsAre(32));
  every.Begin(30);
  EXPECT_THAT(DueAt(every, {31, 39, 40}), ElementsAre(40));
}

TEST(EveryStepsTest, StepsMayGoBack) {
  EXPECT_THAT(DueAt(EverySteps(10), {9, 10, 15, 21, 9, 10, 11, 20}), ElementsAre(10, 21, 10, 20));
}

TEST(EveryStepsTest, ASaveIsDueUntilItBegins) {
  SaveSchedule schedule("10");
  schedule.Begin(12, /*now=*/0);
  EXPECT_FALSE(schedule.Due(19, 0));
  EXPECT_TRUE(schedule.Due(23, 0));
  EXPECT_TRUE(schedule.Due(23, 0));
  schedule.Begin(23, 0);
  EXPECT_FALSE(schedule.Due(23, 0));
  EXPECT_FALSE(schedule.Due(29, 0));
  EXPECT_TRUE(schedule.Due(30, 0));
}

}  // namespace
}  // namespace tutti
