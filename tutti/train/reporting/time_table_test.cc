#include "tutti/train/reporting/time_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  const WorkerTime with_servers = {.steps = 3, .samples = 96, .read = 5, .written = 7};
  const WorkerTime other = WorkerTimeFromText(ToText(with_servers));
  EXPECT_EQ(other.steps, 3);
  EXPECT_EQ(other.samples, 96);
  EXPECT_EQ(other.read, 5);
  EXPECT_EQ(other.written, 7);
}

TEST(TimeTable, WithServersItTellsWhatTravelledAndWhoWasWaitedFor) {
  std::vector<WorkerTime> workers(3, {.total = 10, .compute = 6, .read = 2e6, .written = 1.5e6});
  workers[0].exposed = 4;
  workers[1].exposed = 1.05;
  workers[2].exposed = 1;
  EXPECT_THAT(
      RenderTimeTable(workers),
      StartsWith("worker    compute  waiting    input        read     written  waiting for\n"
                 "0           60.0%    40.0%     0.0%      2.0 MB      1.5 MB  servers\n"))
      << "on their own, workers wait for servers alone";
  FindSlowest(workers);
  EXPECT_EQ(workers[0].slowest, 2);
  EXPECT_DOUBLE_EQ(workers[0].waited, 3);
  EXPECT_EQ(workers[1].slowest, -1) << "half a percent is no wait";
  EXPECT_EQ(workers[2].slowest, -1) << "nobody waits for itself";
  EXPECT_THAT(RenderTimeTable(workers), HasSubstr("1.5 MB  worker 2 (30.0%)\n"));
}

TEST(TimeTable, GivesTheLoadOfServers) {
  const TaskLoad before = {"/job:ps/task:0", 1'000'000'000, 7, 100, 10, 20, 30, 40};
  const TaskLoad after = {"/job:ps/task:0", 3'000'000'000, 500'000'007, 350,
                          2'000'010,        3'000'020,     1'500'030,   4'000'040};
  EXPECT_EQ(RenderServerTable(std::vector<TaskLoad>{after.Since(before)}),
            "server             busy  requests    received        sent  lock waits      cloned\n"
            "/job:ps/task:0    25.0%       250      2.0 MB      3.0 MB      1.5 ms      4.0 MB\n");
  EXPECT_EQ(RenderServerTable({}), "");
}

}  // namespace
}  // namespace tutti
