#include "tutti/net/message/eager_window.h"

#include <gtest/gtest.h>

namespace tutti::net::message {
namespace {

TEST(EagerWindow, LetsThroughWhatFitsAndGoesOnWhenTold) {
  EagerSender sender(3 * EagerCost(100));
  EagerReceiver receiver(3 * EagerCost(100));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(sender.TrySend(100)) << i;
  EXPECT_FALSE(sender.TrySend(0));
  ASSERT_TRUE(receiver.OnTaken(100));  // more than a quarter of the window
  EXPECT_FALSE(receiver.OnTaken(0));
  ASSERT_TRUE(sender.OnTaken(receiver.taken() - EagerCost(0)));
  EXPECT_TRUE(sender.TrySend(100));
  EXPECT_FALSE(sender.TrySend(0));
}

TEST(EagerWindow, KnowsWhatCannotHaveBeenTaken) {
  EagerSender sender(1000);
  ASSERT_TRUE(sender.TrySend(100));
  EXPECT_FALSE(sender.OnTaken(EagerCost(100) + 1));
  EXPECT_TRUE(sender.OnTaken(EagerCost(100)));
  EXPECT_FALSE(sender.OnTaken(EagerCost(100) - 1));
}

// Whatever the sizes: when all has been taken, what was not told leaves room for the longest.
TEST(EagerWindow, IsNeverUsedUpByWhatWasNotTold) {
  for (const size_t bytes : {0, 1, 63, 100, 1000}) {
    const uint64_t window = 4 * EagerCost(1000);
    EagerSender sender(window);
    EagerReceiver receiver(window);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(sender.TrySend(bytes)) << bytes << " bytes, message " << i;
      if (receiver.OnTaken(bytes)) {
        ASSERT_TRUE(sender.OnTaken(receiver.taken()));
      }
    }
  }
}

}  // namespace
}  // namespace tutti::net::message
