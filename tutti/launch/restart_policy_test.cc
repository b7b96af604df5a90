#include "tutti/launch/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace tutti {
namespace {

using Kind = RestartPolicy::Decision::Kind;
using Loss = RestartPolicy::Loss;
using testing::ElementsAre;

constexpr int kKilled = 128 + SIGKILL;
constexpr double kLong = 100;  // seconds: no crash

RestartPolicy::Decision One(RestartPolicy& policy, size_t task, int code, double lived = kLong) {
  const Loss loss = {task, code, lived};
  return policy.Decide(std::span(&loss, 1), loss);
}

TEST(RestartPolicy, StartsNothingAgainUnlessAsked) {
  RestartPolicy policy({});
  EXPECT_FALSE(policy.MayCure(kKilled));
  EXPECT_EQ(One(policy, 0, kKilled).kind, Kind::kGiveUp);
  EXPECT_EQ(One(policy, 0, kKilled).reason, "");
}

TEST(RestartPolicy, WhatAProgramSaysIsFinal) {
  RestartPolicy policy({.restarts = 5});
  for (const int code : {1, 2, 127}) {
    EXPECT_FALSE(policy.MayCure(code)) << code;
    EXPECT_EQ(One(policy, 0, code).kind, Kind::kGiveUp) << code;
  }
  EXPECT_EQ(policy.used(), 0);
}

TEST(RestartPolicy, ATaskThatNobodyMissesIsStartedAlone) {
  RestartPolicy policy({.restarts = 2});
  const auto decision = One(policy, 3, kKilled);
  EXPECT_EQ(decision.kind, Kind::kTasks);
  EXPECT_THAT(decision.tasks, ElementsAre(3));
}

TEST(RestartPolicy, TasksKilledTogetherAreStartedTogether) {
  RestartPolicy policy({.restarts = 2});
  const Loss losses[] = {{1, kKilled, kLong}, {2, kKilled, kLong}};
  const auto decision = policy.Decide(losses, losses[0]);
  EXPECT_EQ(decision.kind, Kind::kTasks);
  EXPECT_THAT(decision.tasks, ElementsAre(1, 2));
  EXPECT_EQ(policy.used(), 1);
}

TEST(RestartPolicy, TheWholeJobWhereOthersEndWithTheLostOne) {
  RestartPolicy policy({.restarts = 2});
  const Loss losses[] = {{1, kKilled, kLong}, {0, RestartPolicy::kPeerLost, kLong}};
  EXPECT_EQ(policy.Decide(losses, losses[0]).kind, Kind::kJob);
}

TEST(RestartPolicy, ALossThatAnErrorOfTheProgramCausedIsFinal) {
  RestartPolicy policy({.restarts = 2});
  const Loss losses[] = {{0, RestartPolicy::kPeerLost, kLong}, {1, 1, kLong}};
  EXPECT_EQ(policy.Decide(losses, losses[1]).kind, Kind::kGiveUp);
}

TEST(RestartPolicy, PausesDoubleUpToTheLongest) {
  RestartPolicy policy({.restarts = 5, .first_pause = 1, .longest_pause = 6});
  std::vector<double> pauses;
  for (int i = 0; i < 5; ++i) {
    pauses.push_back(policy.PauseSeconds());
    One(policy, 0, kKilled);
  }
  EXPECT_THAT(pauses, ElementsAre(1, 2, 4, 6, 6));
}

TEST(RestartPolicy, GivesUpWhenTheRestartsAreUsed) {
  RestartPolicy policy({.restarts = 1});
  EXPECT_EQ(One(policy, 0, kKilled).kind, Kind::kTasks);
  const auto last = One(policy, 0, kKilled);
  EXPECT_EQ(last.kind, Kind::kGiveUp);
  EXPECT_EQ(last.reason, "1 restart was made");
}

TEST(RestartPolicy, GivesUpACrashLoop) {
  RestartPolicy policy({.restarts = 100});
  EXPECT_EQ(One(policy, 0, kKilled, 0.1).kind, Kind::kTasks);
  EXPECT_EQ(One(policy, 0, kKilled, 0.1).kind, Kind::kTasks);
  const auto last = One(policy, 0, kKilled, 0.1);
  EXPECT_EQ(last.kind, Kind::kGiveUp);
  EXPECT_EQ(last.reason,
            "it has ended within 10 s of its start 3 times in a row, so it is not started again");
}

TEST(RestartPolicy, ALongLifeEndsTheCountOfCrashes) {
  RestartPolicy policy({.restarts = 100});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(One(policy, 0, kKilled, i % 2 == 0 ? 0.1 : kLong).kind, Kind::kTasks) << i;
  }
}

TEST(RestartPolicy, CrashesOfDifferentTasksAreNoLoop) {
  RestartPolicy policy({.restarts = 100});
  for (size_t task = 0; task < 20; ++task) {
    EXPECT_EQ(One(policy, task, kKilled, 0.1).kind, Kind::kTasks) << task;
  }
}

}  // namespace
}  // namespace tutti
