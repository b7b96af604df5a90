// Collectives over links that delay, lose or cut what is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/collective/in_process.h"
#include "tutti/net/loopback/loopback_transport.h"
#include "tutti/testing/collective/ranks_under_test.h"
#include "tutti/testing/faulty_transport.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;
using ::tutti::testing::Faults;
using ::tutti::testing::FaultyTransport;

// Ranks of which those that `faults` holds something for have faulty links.
RanksUnderTest Faulty(int ranks, const std::vector<std::pair<int, Faults>>& faults,
                      double late_seconds = 5) {
  auto transports = net::LoopbackTransport::Make(ranks);
  for (const auto& [rank, what] : faults) {
    transports[rank] = std::make_unique<FaultyTransport>(std::move(transports[rank]), what);
  }
  return RanksUnderTest(JoinInProcess(std::move(transports), {}, late_seconds));
}

constexpr const char* kAlgorithms[] = {"exchange", "direct",           "ring",
                                       "tree",     "halving-doubling", "central:2"};

TEST(FaultyLinks, DelayedMessagesChangeNoResult) {
  for (const char* algorithm : kAlgorithms) {
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << algorithm << ", seed " << seed);
      std::vector<std::pair<int, Faults>> faults;
      for (int rank = 0; rank < 3; ++rank) {
        faults.push_back({rank, {.seed = seed * 10 + rank, .delay = 0.3, .delay_nanos = 100'000}});
      }
      RanksUnderTest ranks = Faulty(3, faults);
      std::atomic<int> finished{0};
      ranks.Run([&](Communicator& communicator) {
        // Open to the end, so that Poll sends what is delayed when all else is done.
        const std::string key = "open/" + std::to_string(communicator.rank());
        const Handle open = communicator.world().Barrier({.key = key});
        // One that goes with the envelope, and longer ones.
        for (const int64_t count : {1, 100, 50'000}) {
          std::vector<float> data(static_cast<size_t>(count));
          for (int64_t i = 0; i < count; ++i) {
            data[i] = static_cast<float>(i % 100 * (communicator.rank() + 1));
          }
          EXPECT_TRUE(communicator.world()
                          .AllReduce(data.data(), count, kFloat32, {.algorithm = algorithm})
                          .Wait()
                          .ok());
          int64_t wrong = 0;
          for (int64_t i = 0; i < count; ++i) wrong += data[i] != static_cast<float>(i % 100 * 6);
          EXPECT_EQ(wrong, 0) << "of " << count << " elements";
        }
        ++finished;
        while (finished < 3) communicator.Poll();
      });
    }
  }
}

// Wherever in an operation a link is cut, every rank ends with the same cause, and none waits on.
TEST(FaultyLinks, ACutLinkEndsAllRanksWithOneCause) {
  for (const char* algorithm : kAlgorithms) {
    for (int64_t messages = 0; messages < 12; ++messages) {
      SCOPED_TRACE(::testing::Message() << algorithm << ", cut after " << messages);
      RanksUnderTest ranks = Faulty(3, {{1, {.cut_after = messages}}});
      std::vector<absl::Status> ends(3);
      ranks.Run([&](Communicator& communicator) {
        std::vector<float> data(1000, 1);
        absl::Status& end = ends[communicator.rank()];
        for (int i = 0; i < 100 && end.ok(); ++i) {
          end = communicator.world()
                    .AllReduce(data.data(), 1000, kFloat32, {.algorithm = algorithm})
                    .Wait();
        }
      });
      EXPECT_EQ(ends[0].code(), absl::StatusCode::kUnavailable) << ends[0];
      EXPECT_EQ(ends[1], ends[0]);
      EXPECT_EQ(ends[2], ends[0]);
    }
  }
}

TEST(FaultyLinks, ARankWhoseMessagesAreLostIsNamed) {
  RanksUnderTest ranks = Faulty(3, {{1, {.drop = 1}}}, 0.1);
  std::vector<std::vector<float>> data(3, std::vector<float>(1000, 1));
  std::vector<Handle> handles;
  for (int r = 0; r < 3; ++r) {
    handles.push_back(ranks[r].world().AllReduce(data[r].data(), 1000, kFloat32,
                                                 {.key = "lost", .algorithm = "exchange"}));
  }
  ::testing::internal::CaptureStderr();
  const int64_t end = NowNanos() + 300'000'000;
  while (NowNanos() < end) {
    for (int r = 0; r < 3; ++r) ranks[r].Poll();
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("all-reduce \"lost\", step 0 has waited"));
  EXPECT_THAT(log, HasSubstr("s for rank 1 ("));
  ranks[0].Abort(Cancelled("enough"));
  EXPECT_THAT(handles[0].Wait().message(), HasSubstr("enough"));
  EXPECT_TRUE(handles[1].Wait().ok()) << "what the others sent has come";
  EXPECT_THAT(handles[2].Wait().message(), HasSubstr("enough"));
}

}  // namespace
}  // namespace tutti::collective
