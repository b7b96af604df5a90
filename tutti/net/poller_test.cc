#include "tutti/net/poller.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tutti/base/clock.h"

namespace tutti::net {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(Poller, AWakeIsForAllWhoSleep) {
  Poller poller;
  ASSERT_TRUE(poller.Open().ok());
  for (int round = 0; round < 200; ++round) {
    const int64_t start = NowNanos();
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { poller.Wait(60 * kSecond, 0); });
    while (poller.sleepers() < 3) std::this_thread::yield();
    poller.Wake();
    for (std::thread& thread : threads) thread.join();
    ASSERT_LT(NowNanos() - start, 30 * kSecond) << "round " << round;
  }
}

TEST(Poller, AWakeWithNobodyAsleepIsForTheNextAlone) {
  Poller poller;
  ASSERT_TRUE(poller.Open().ok());
  poller.Wake();
  poller.Wake();
  const int64_t start = NowNanos();
  poller.Wait(60 * kSecond, 0);
  EXPECT_LT(NowNanos() - start, 30 * kSecond);
  const int64_t second = NowNanos();
  poller.Wait(20'000'000, 0);
  EXPECT_GE(NowNanos() - second, 20'000'000);
}

}  // namespace
}  // namespace tutti::net
