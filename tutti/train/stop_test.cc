#include "tutti/train/stop.h"

#include <gtest/gtest.h>

#include <csignal>

namespace tutti {
namespace {

class StopTest : public ::testing::Test {
 protected:
  void TearDown() override { RequestStop(0); }
};

TEST_F(StopTest, TheSecondSignalIsTold) {
  EXPECT_TRUE(FirstStopSignal(SIGTERM));
  EXPECT_EQ(StopSignal(), SIGTERM);
  EXPECT_FALSE(FirstStopSignal(SIGINT));
  RequestStop(0);
  EXPECT_FALSE(StopRequested());
  EXPECT_TRUE(FirstStopSignal(SIGINT));
}

// Another worker's request comes before the signal that both get.
TEST_F(StopTest, ARequestIsNoSignal) {
  RequestStop(SIGTERM);
  EXPECT_TRUE(FirstStopSignal(SIGTERM));
  EXPECT_FALSE(FirstStopSignal(SIGTERM));
}

}  // namespace
}  // namespace tutti
