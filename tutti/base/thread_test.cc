#include "tutti/base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/status.h"
#include "tutti/testing/no_threads.h"

namespace tutti {
namespace {

TEST(StartThread, RunsTheBody) {
  int ran = 0;
  auto thread = StartThread("the thread of a test", [&] { ran = 1; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(ran, 1);
}

TEST(StartThread, ALimitIsAStatusThatNamesIt) {
  const testing::NoThreads none;
  const auto thread = StartThread("the thread of a test", [] {});
  ASSERT_EQ(thread.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(MessageOf(thread.status())),
              ::testing::AllOf(::testing::HasSubstr("cannot start the thread of a test"),
                               ::testing::HasSubstr("ulimit -v")));
}

}  // namespace
}  // namespace tutti
