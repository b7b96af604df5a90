// A rank that is alive but late is warned about by name, again and again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/clock.h"
#include "tutti/collective/in_process.h"
#include "tutti/net/loopback/loopback_transport.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

TEST(Late, TheRankThatIsWaitedForIsNamed) {
  RanksUnderTest ranks(JoinInProcess(net::LoopbackTransport::Make(3), {}, 0.1));
  std::vector<std::vector<float>> data(3, std::vector<float>(1000, 1));
  const auto start = [&](int r) {
    return ranks[r].world().AllReduce(data[r].data(), 1000, kFloat32,
                                      {.key = "grads/bucket_3", .step = 812});
  };
  std::vector<Handle> handles = {start(0), start(1)};
  testing::internal::CaptureStderr();
  const int64_t end = NowNanos() + 450'000'000;
  while (NowNanos() < end) {
    ranks[0].Poll();
    ranks[1].Poll();
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("all-reduce \"grads/bucket_3\", step 812 has waited"));
  EXPECT_THAT(log, HasSubstr("s for rank 2 ("));
  EXPECT_THAT(log, HasSubstr("; it is alive"));
  EXPECT_NE(log.find("has waited"), log.rfind("has waited"));
  handles.push_back(start(2));
  while (!handles[0].done() || !handles[1].done() || !handles[2].done()) {
    for (int r = 0; r < 3; ++r) ranks[r].Poll();
  }
  for (const Handle& handle : handles) EXPECT_TRUE(handle.Wait().ok());
  EXPECT_EQ(data[0][0], 3);
}

}  // namespace
}  // namespace tutti::collective
