#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "tutti/base/cancellation.h"
#include "tutti/base/checked.h"
#include "tutti/base/cores.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/base/team.h"

namespace tutti {
namespace {

TEST(Status, BecomesAnErrorWithTheSameCodeAndText) {
  try {
    ThrowIfError(InvalidArgument("a is {}, b is {}", 1, 2));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_STREQ(error.what(), "a is 1, b is 2");
    EXPECT_STREQ(CodeName(error.code()), "INVALID_ARGUMENT");
  }
}

TEST(Status, OfAnExceptionKeepsTheCode) {
  absl::Status status;
  try {
    throw Error(Code::kOutOfRange, "index 7");
  } catch (...) {
    status = StatusFromCurrentException();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MessageOf(status), "index 7");
  EXPECT_EQ(MessageOf(WithPrefix(status, "Gather: ")), "Gather: index 7");
}

TEST(Checked, OverflowIsAnAnswer) {
  EXPECT_EQ(CheckedMul(3, 4), 12);
  EXPECT_FALSE(CheckedMul(int64_t{1} << 40, int64_t{1} << 40).has_value());
  EXPECT_FALSE(CheckedAdd(INT64_MAX, 1).has_value());
  EXPECT_EQ(RoundUp(65, 64), 128);
}

TEST(UsableCores, AreThoseOfTheThread) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(UsableCores(), CPU_COUNT(&all));
  int first = 0;
  while (!CPU_ISSET(size_t(first), &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(size_t(first), &one);
  // On a thread of its own, so that other tests keep their cores.
  std::thread([&] {
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCores(), 1);
  }).join();
}

TEST(Team, CoversEveryIndexOnce) {
  for (int cores : {1, 2, 3}) {
    for (int64_t count : {0, 1, 7, 1000}) {
      for (int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> seen(count);
        Team(cores).ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) seen[i]++;
        });
        for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
      }
    }
  }
}

TEST(Cancellation, RunsCallbacksOnceAndKeepsTheFirstReason) {
  Cancellation cancellation;
  int calls = 0;
  const auto kept = cancellation.Register([&] { ++calls; });
  const auto removed = cancellation.Register([&] { calls += 100; });
  EXPECT_TRUE(cancellation.Deregister(removed));
  cancellation.Cancel(Cancelled("first"));
  cancellation.Cancel(Cancelled("second"));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(cancellation.Deregister(kept));
  EXPECT_EQ(MessageOf(cancellation.status()), "first");
  EXPECT_EQ(cancellation.Register([] {}), Cancellation::kNone);
}

TEST(Cancellation, DeregisterWaitsForARunningCallback) {
  Cancellation cancellation;
  std::atomic<bool> entered{false};
  std::atomic<bool> release{false};
  std::atomic<bool> left{false};
  const auto handle = cancellation.Register([&] {
    entered = true;
    entered.notify_all();
    release.wait(false);
    left = true;
  });
  std::thread canceller([&] { cancellation.Cancel(Cancelled("stop")); });
  entered.wait(false);
  std::thread releaser([&] {
    release = true;
    release.notify_all();
  });
  EXPECT_FALSE(cancellation.Deregister(handle));
  EXPECT_TRUE(left.load());
  canceller.join();
  releaser.join();
}

}  // namespace
}  // namespace tutti
