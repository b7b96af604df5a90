#include "tutti/net/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>

#include "tutti/base/clock.h"

namespace tutti::net {
namespace {

// A timer that comes due while the loop looks at something else that woke it must not be lost:
// nothing else will wake it.
TEST(EventLoopTest, ATimerThatComesDueWhileTheLoopIsAwakeRuns) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  auto loop = EventLoop::Create("timers");
  ASSERT_TRUE(loop.ok()) << loop.status();
  ASSERT_TRUE((*loop)->Start().ok());
  constexpr int64_t kDelay = 100'000;
  for (int round = 0; round < 3000; ++round) {
    std::promise<void> ran;
    std::atomic<int64_t> due = 0;
    (*loop)->Post([&] {
      due = NowNanos() + kDelay;
      (*loop)->After(kDelay, [&] { ran.set_value(); });
    });
    while (due == 0 || NowNanos() < due - int64_t(random() % 40'000)) continue;
    (*loop)->Post([] {});
    const auto status = ran.get_future().wait_for(std::chrono::seconds(20));
    ASSERT_EQ(status, std::future_status::ready) << "round " << round;
  }
}

}  // namespace
}  // namespace tutti::net
