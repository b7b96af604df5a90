#include "tutti/train/reporting/time_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;

const WorkerTime kFirst = {.total = 10,
                           .input = 0.05,
                           .compute = 9,
                           .hidden = 0.5,
                           .exposed = 0.95,
                           .bytes = 12.5e6,
                           .slowest = 1,
                           .waited = 0.3};

TEST(TimeTable, GivesSharesOfEachWorkersTime) {
  WorkerTime second;
  second.total = 5;
  second.compute = 5;
  EXPECT_EQ(RenderTimeTable(std::vector<WorkerTime>{kFirst, second}),
            "worker    compute  comm hidden  comm exposed    input    reduced  waiting for\n"
            "0           90.0%         5.0%          9.5%     0.5%    12.5 MB  worker 1 (3.0%)\n"
            "1          100.0%         0.0%          0.0%     0.0%     0.0 MB  nobody\n");
}

TEST(TimeTable, ATrainingWithoutStepsHasNoShares) {
  EXPECT_THAT(RenderTimeTable(std::vector<WorkerTime>(1)), HasSubstr("0.0%"));
}

TEST(TimeTable, TravelsAsText) {
  const WorkerTime back = WorkerTimeFromText(ToText(kFirst));
  EXPECT_EQ(back.total, kFirst.total);
  EXPECT_EQ(back.input, kFirst.input);
  EXPECT_EQ(back.compute, kFirst.compute);
  EXPECT_EQ(back.hidden, kFirst.hidden);
  EXPECT_EQ(back.exposed, kFirst.exposed);
  EXPECT_EQ(back.bytes, kFirst.bytes);
  EXPECT_EQ(back.slowest, kFirst.slowest);
  EXPECT_EQ(back.waited, kFirst.waited);
}

}  // namespace
}  // namespace tutti
