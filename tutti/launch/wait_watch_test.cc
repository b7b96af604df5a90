#include "tutti/launch/wait_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using enum TaskState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using States = std::vector<TaskState>;

constexpr int64_t kSecond = 1'000'000'000;

// Two tasks, looked at once a second.
class WaitWatchTest : public ::testing::Test {
 protected:
  // All that is found in so many seconds of these states.
  WaitWatch::Finding Pass(int seconds, const States& states) {
    WaitWatch::Finding all;
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecond;
      const WaitWatch::Finding finding = watch_.Look(states, now_);
      all.lines.insert(all.lines.end(), finding.lines.begin(), finding.lines.end());
      all.given_up.insert(all.given_up.end(), finding.given_up.begin(), finding.given_up.end());
    }
    return all;
  }

  WaitWatch watch_{{{"worker 0", 100}, {"worker 1", 101}}, 30};
  int64_t now_ = 0;
};

TEST_F(WaitWatchTest, SaysNothingOfTasksThatRun) {
  EXPECT_THAT(Pass(1000, {kRunning, kRunning}).lines, IsEmpty());
}

TEST_F(WaitWatchTest, WarnsOfAStoppedTaskAgainAndAgain) {
  const auto finding = Pass(11, {kRunning, kStopped});
  EXPECT_THAT(
      finding.lines,
      ElementsAre(
          "worker 1 (process 101) has been stopped for 5 s; kill -CONT 101 lets it go on",
          "worker 1 (process 101) has been stopped for 10 s; kill -CONT 101 lets it go on"));
}

TEST_F(WaitWatchTest, GivesUpAStoppedTaskOnceTheOthersHaveEnded) {
  const auto finding = Pass(100, {kEnded, kStopped});
  EXPECT_THAT(finding.given_up, ElementsAre(1));
  EXPECT_EQ(finding.lines.back(),
            "worker 1 (process 101) has been stopped for 30 s and nobody else is at work; it is "
            "ended");
}

TEST_F(WaitWatchTest, GivesNobodyUpWhileAnotherRunsOrAllArePaused) {
  EXPECT_THAT(Pass(1000, {kRunning, kStopped}).given_up, IsEmpty());
  EXPECT_THAT(Pass(1000, {kStopped, kStopped}).given_up, IsEmpty());
}

TEST_F(WaitWatchTest, ATaskThatGoesOnIsForgotten) {
  Pass(20, {kEnded, kStopped});
  Pass(1, {kEnded, kRunning});
  EXPECT_THAT(Pass(20, {kEnded, kStopped}).given_up, IsEmpty());
}

TEST_F(WaitWatchTest, TellsEverMoreRarelyWhoRunsOnAfterAnEnd) {
  EXPECT_THAT(Pass(100, {kEnded, kRunning}).lines,
              ElementsAre("still running 10 s after the first end: worker 1; ended: worker 0",
                          "still running 30 s after the first end: worker 1; ended: worker 0",
                          "still running 90 s after the first end: worker 1; ended: worker 0"));
}

}  // namespace
}  // namespace tutti
