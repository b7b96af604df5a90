// How a star ends: what one rank reports or leaves with reaches every other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/star.h"
#include "tutti/net/coordination/star_test_ranks.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(StarEnd, TellsEveryRankWhatOneReports) {
  for (const size_t reporter : {0, 2}) {
    const TestFolder folder;
    auto stars = ConnectRanks(TestRanks(4, folder.File("meet")));
    ASSERT_EQ(stars.size(), 4u);
    std::vector<Verdict> verdicts;
    for (auto& star : stars) verdicts.emplace_back(star.get());
    stars[reporter]->ReportFailure(InvalidArgument("ranks disagree"));
    for (Verdict& verdict : verdicts) {
      EXPECT_EQ(verdict.Wait(), std::pair(-1, absl::InvalidArgumentError("ranks disagree")));
    }
    // The first cause stays, also for who asks later and for calls.
    stars[1]->ReportFailure(Internal("something later"));
    EXPECT_EQ(stars[3]->AllGather("").status(), absl::InvalidArgumentError("ranks disagree"));
    EXPECT_EQ(Verdict(stars[1].get()).Wait().second.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(StarEnd, EndsCallsWithTheFailure) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  std::thread waiting(
      [&] { EXPECT_EQ(stars[1]->AllGather("").status(), absl::InternalError("rank 2 gave up")); });
  stars[2]->ReportFailure(Internal("rank 2 gave up"));
  waiting.join();
}

TEST(StarEnd, ALostLinkNamesTheRankBehindIt) {
  for (const size_t reporter : {0, 1}) {
    const TestFolder folder;
    auto stars = ConnectRanks(TestRanks(4, folder.File("meet")));
    ASSERT_EQ(stars.size(), 4u);
    std::vector<Verdict> verdicts;
    for (auto& star : stars) verdicts.emplace_back(star.get());
    stars[reporter]->ReportLost(2, Unavailable("connection reset by peer"));
    for (Verdict& verdict : verdicts) {
      const auto [rank, status] = verdict.Wait();
      EXPECT_EQ(rank, 2);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(Text(status),
                  MatchesRegex(fmt::format("rank {} lost its link to rank 2 \\(host 127.0.0.1, pid "
                                           "[0-9]+\\): connection reset by peer",
                                           reporter)));
    }
    // The reporter's own explanation, due half a second after its report, comes too late.
    const absl::Status first = verdicts[reporter].Wait().second;
    for (const int64_t until = NowNanos() + 600'000'000; NowNanos() < until;) {
      ASSERT_EQ(stars[reporter]->AllGather("").status(), first);
    }
  }
}

// The two ends of a link report its end, one of them knows the reason.
TEST(StarEnd, AReasonCountsMoreThanAnEnd) {
  for (const bool reason_first : {false, true}) {
    const TestFolder folder;
    const auto stars = ConnectRanks(TestRanks(3, folder.File("star")));
    ASSERT_EQ(stars.size(), 3u);
    std::vector<Verdict> verdicts;
    for (const auto& star : stars) verdicts.emplace_back(star.get());
    const auto reason = [&] { stars[2]->ReportLost(1, absl::ResourceExhaustedError("too much")); };
    if (reason_first) reason();
    stars[1]->ReportLost(2, absl::UnavailableError("closed"));
    if (!reason_first) reason();
    for (const Verdict& verdict : verdicts) {
      const auto [rank, status] = verdict.Wait();
      EXPECT_EQ(rank, 1);
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(Text(status), testing::HasSubstr("too much"));
    }
  }
}

TEST(StarEnd, LeavingIsNoFailureUntilItIsMissed) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(4, folder.File("meet")));
  ASSERT_EQ(stars.size(), 4u);
  std::vector<Verdict> verdicts;
  for (auto& star : stars) verdicts.emplace_back(star.get());
  stars[2].reset();
  OnAll(stars, [](Star& star) {
    EXPECT_EQ(star.AllGather("").status(), absl::UnavailableError("rank 2 left the job"));
  });
  for (const size_t i : {0, 1, 3}) EXPECT_FALSE(verdicts[i].known());
  stars[3]->ReportLost(2, Unavailable("connection reset by peer"));
  for (const size_t i : {0, 1, 3}) {
    EXPECT_EQ(verdicts[i].Wait(), std::pair(2, absl::UnavailableError("rank 2 left the job")));
  }
}

// The link's end may be seen before the word that the rank left.
TEST(StarEnd, TellsWhoLeft) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("star")));
  ASSERT_EQ(stars.size(), 3u);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, int>> told;  // to, of
  const auto listen = [&](int rank) {
    stars[size_t(rank)]->OnLeft([&, rank](int left, const absl::Status& status) {
      EXPECT_EQ(Text(status), "rank " + std::to_string(left) + " left the job");
      const std::lock_guard lock(mutex);
      told.emplace_back(rank, left);
      changed.notify_all();
    });
  };
  const auto wait = [&](size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return told.size() >= count; });
    std::sort(told.begin(), told.end());
    return std::exchange(told, {});
  };
  using Told = std::vector<std::pair<int, int>>;
  listen(0);
  stars[2].reset();
  EXPECT_EQ(wait(1), Told({{0, 2}}));
  listen(1);  // it hears of what has been, too
  EXPECT_EQ(wait(1), Told({{1, 2}}));
  stars[0].reset();
  EXPECT_EQ(wait(1), Told({{1, 0}}));
}

TEST(StarEnd, ALossIsExplainedByALeaveThatComesLater) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  Verdict verdict(stars[1].get());
  stars[0]->ReportLost(2, Unavailable("connection reset by peer"));
  stars[2].reset();
  EXPECT_EQ(verdict.Wait(), std::pair(2, absl::UnavailableError("rank 2 left the job")));
}

TEST(StarEnd, OthersLiveOnWhenRankZeroLeaves) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  Verdict one(stars[1].get()), two(stars[2].get());
  stars[0].reset();
  EXPECT_EQ(stars[1]->AllGather("").status(), absl::UnavailableError("rank 0 left the job"));
  EXPECT_EQ(stars[2]->AllGather("").status(), absl::UnavailableError("rank 0 left the job"));
  EXPECT_FALSE(one.known() || two.known());
  stars[1]->ReportLost(2, Unavailable("it broke"));
  EXPECT_EQ(one.Wait(), std::pair(2, absl::UnavailableError("it broke")));
  stars[2]->ReportLost(0, Unavailable("it broke"));
  EXPECT_EQ(two.Wait(), std::pair(0, absl::UnavailableError("rank 0 left the job")));
}

TEST(StarEnd, GoesPromptly) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(4, folder.File("meet")));
  ASSERT_EQ(stars.size(), 4u);
  for (const size_t i : {3, 0, 1, 2}) {
    const int64_t start = NowNanos();
    stars[i].reset();
    EXPECT_LT(NowNanos() - start, 1'000'000'000);  // ten times the contract's 100 ms
  }
}

}  // namespace
}  // namespace tutti::net
