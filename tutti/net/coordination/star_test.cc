#include "tutti/net/coordination/star.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <thread>

#include "tutti/base/cancellation.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/meeting_file.h"
#include "tutti/net/coordination/star_test_ranks.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

void ExpectCallsWork(const std::vector<std::unique_ptr<Star>>& stars) {
  OnAll(stars, [](Star& star) {
    for (int round = 0; round < 3; ++round) {
      const auto gathered = star.AllGather(
          fmt::format("{}:{}", round, std::string(static_cast<size_t>(star.rank()), 'x')));
      ASSERT_TRUE(gathered.ok()) << gathered.status();
      ASSERT_EQ(gathered->size(), static_cast<size_t>(star.size()));
      for (size_t r = 0; r < gathered->size(); ++r) {
        EXPECT_EQ((*gathered)[r], fmt::format("{}:{}", round, std::string(r, 'x')));
      }
      const auto word =
          star.Broadcast(star.rank() == 0 ? fmt::format("word {}", round) : "ignored");
      ASSERT_TRUE(word.ok()) << word.status();
      EXPECT_EQ(*word, fmt::format("word {}", round));
    }
  });
}

TEST(Star, JoinsAnyNumberOfRanksThroughAFile) {
  for (const int size : {1, 2, 3, 5, 8, 16}) {
    SCOPED_TRACE(size);
    const TestFolder folder;
    auto stars = ConnectRanks(TestRanks(size, folder.File("meet")));
    ASSERT_EQ(stars.size(), static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) {
      EXPECT_EQ(stars[static_cast<size_t>(r)]->rank(), r);
      EXPECT_EQ(stars[static_cast<size_t>(r)]->size(), size);
      EXPECT_EQ(stars[static_cast<size_t>(r)]->own_address(), "127.0.0.1");
    }
    ExpectCallsWork(stars);
    stars.clear();
    EXPECT_FALSE(std::filesystem::exists(folder.File("meet")));
  }
}

TEST(Star, JoinsRanksAtAnAddress) {
  for (const std::string host : {"127.0.0.1", "::1", "localhost"}) {
    const std::string address = FreeAddress(host);
    if (address.empty()) continue;  // a machine without IPv6
    SCOPED_TRACE(address);
    auto options = TestRanks(3, "");
    for (StarOptions& each : options) each.address = address;
    auto stars = ConnectRanks(options);
    ASSERT_EQ(stars.size(), 3u);
    ExpectCallsWork(stars);
    EXPECT_EQ(fmt::format("{}", stars[1]->own_address()), stars[0]->own_address());
  }
}

TEST(Star, TakesLargeAndEmptyParts) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  OnAll(stars, [](Star& star) {
    const size_t bytes =
        star.rank() == 1 ? 0 : size_t{5'000'000} + static_cast<size_t>(star.rank());
    const auto parts = star.AllGather(std::string(bytes, static_cast<char>('a' + star.rank())));
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_TRUE((*parts)[0] == std::string(5'000'000, 'a'));
    EXPECT_EQ((*parts)[1], "");
    EXPECT_TRUE((*parts)[2] == std::string(5'000'002, 'c'));
  });
}

TEST(Star, TellsEveryRankThatPartsAreTooLarge) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  OnAll(stars, [](Star& star) {
    const auto one = star.AllGather(std::string(star.rank() == 1 ? (64 << 20) + 1 : 1, 'x'));
    EXPECT_EQ(one.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Text(one.status()),
                MatchesRegex("rank 1 \\(host 127.0.0.1, pid [0-9]+\\): 67108865 bytes given, the "
                             "limit of all ranks' together is 67108864"));
    const auto all = star.AllGather(std::string(23 << 20, 'x'));
    EXPECT_EQ(all.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Text(all.status()), HasSubstr("the limit is 67108864"));
    EXPECT_TRUE(star.AllGather("and on").ok());
  });
}

TEST(Star, TellsEveryRankThatCallsDiffer) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(3, folder.File("meet")));
  ASSERT_EQ(stars.size(), 3u);
  OnAll(stars, [](Star& star) {
    const absl::Status status =
        star.rank() == 2 ? star.Broadcast("").status() : star.AllGather("x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Text(status), HasSubstr("all ranks must call in the same order"));
    EXPECT_TRUE(star.AllGather("and on").ok());
  });
}

TEST(Star, CarriesProgressToAll) {
  const TestFolder folder;
  auto options = TestRanks(3, folder.File("meet"));
  for (StarOptions& each : options) each.silence_seconds = 1;
  auto stars = ConnectRanks(options);
  ASSERT_EQ(stars.size(), 3u);
  for (auto& star : stars) star->SetProgress(10 + static_cast<uint64_t>(star->rank()));
  const std::vector<uint64_t> expected = {10, 11, 12};
  const int64_t deadline = NowNanos() + 10'000'000'000;
  for (auto& star : stars) {
    while (star->Progress() != expected && NowNanos() < deadline) std::this_thread::yield();
    EXPECT_EQ(star->Progress(), expected) << "rank " << star->rank();
  }
}

// A rank that does not fit is told why at once, and the job starts without it.
void ExpectRefused(StarOptions odd, absl::StatusCode code, const std::string& text) {
  SCOPED_TRACE(text);
  const TestFolder folder;
  const std::string address = FreeAddress();
  std::unique_ptr<Star> hub;
  StarOptions first = TestOptions(0, 2, "");
  first.address = address;
  std::thread thread([&] {
    StarResult star = Star::Connect(first);
    EXPECT_TRUE(star.ok()) << star.status();
    if (star.ok()) hub = *std::move(star);
  });
  odd.address = address;
  const StarResult refused = Star::Connect(odd);
  EXPECT_EQ(refused.status().code(), code) << refused.status();
  EXPECT_THAT(Text(refused.status()), HasSubstr(text));
  StarOptions good = TestOptions(1, 2, "");
  good.address = address;
  const StarResult star = Star::Connect(good);
  EXPECT_TRUE(star.ok()) << star.status();
  thread.join();
}

TEST(Star, RefusesWhatDoesNotFit) {
  StarOptions odd = TestOptions(1, 2, "");
  odd.token = "guess";
  ExpectRefused(odd, absl::StatusCode::kPermissionDenied, "refused by the peer: wrong token");
  odd = TestOptions(1, 2, "");
  odd.job = "other";
  ExpectRefused(odd, absl::StatusCode::kFailedPrecondition, "job is 'other', expected 'test'");
  odd = TestOptions(1, 3, "");
  ExpectRefused(odd, absl::StatusCode::kFailedPrecondition, "job of 3 ranks, expected 2");
  odd = TestOptions(1, 2, "");
  odd.fingerprint = {"buckets=4"};
  ExpectRefused(odd, absl::StatusCode::kFailedPrecondition,
                "rank 1 is set up differently: it has buckets=4, rank 0 has nothing");
  odd = TestOptions(1, 2, "");
  odd.generation = 5;
  odd.timeout_seconds = 0.3;  // the other generation may end, so this is tried again
  ExpectRefused(odd, absl::StatusCode::kDeadlineExceeded, "generation is 5, expected 0");
}

TEST(Star, ShowsWhatARankOfALargerJobHasMore) {
  const TestFolder folder;
  auto options = TestRanks(2, folder.File("meet"));
  options[0].fingerprint = {"cluster.worker[0]=a:1", "cluster.worker[1]=b:1", "size=2"};
  options[0].timeout_seconds = 1;
  options[1].rank = 2;
  options[1].size = 3;
  options[1].fingerprint = {"cluster.worker[0]=a:1", "cluster.worker[1]=b:1",
                            "cluster.worker[2]=c:1", "size=2"};
  const auto stars = ConnectAll(options);
  EXPECT_THAT(Text(stars[1].status()),
              HasSubstr("it has cluster.worker[2]=c:1, rank 0 has nothing of that name"));
}

TEST(Star, ShowsTheFirstDifferenceOfFingerprints) {
  const TestFolder folder;
  auto options = TestRanks(2, folder.File("meet"));
  options[0].fingerprint = {"dtype=float32", "buckets=4", "order=a"};
  options[1].fingerprint = {"dtype=float32", "buckets=5", "order=b"};
  options[0].timeout_seconds = 1;
  const auto stars = ConnectAll(options);
  EXPECT_THAT(Text(stars[1].status()), HasSubstr("it has buckets=5, rank 0 has buckets=4"));
  EXPECT_EQ(stars[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(stars[0].status()),
              HasSubstr("1 of 2 ranks of job 'test' are missing: rank 1 was refused: rank 1 is set "
                        "up differently: it has buckets=5, rank 0 has buckets=4"));
}

TEST(Star, RefusesASecondProcessWithTheSameRank) {
  const TestFolder folder;
  auto stars = ConnectRanks(TestRanks(2, folder.File("meet")));
  ASSERT_EQ(stars.size(), 2u);
  const StarResult second = Star::Connect(TestOptions(1, 2, folder.File("meet")));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(second.status()),
              HasSubstr("rank 1 is taken by host 127.0.0.1, pid " + std::to_string(getpid())));
  ExpectCallsWork(stars);
}

TEST(Star, ListsWhoIsMissingOnEveryRank) {
  const TestFolder folder;
  auto options = TestRanks(5, folder.File("meet"));
  options[3].token = "guess";
  options.erase(options.begin() + 2);
  for (StarOptions& each : options) each.timeout_seconds = 1;
  const auto stars = ConnectAll(options);
  for (const size_t i : {0, 1, 3}) {  // ranks 0, 1 and 4
    EXPECT_EQ(stars[i].status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(stars[i].status()), HasSubstr("2 of 5 ranks of job 'test' are missing: rank 2 "
                                                   "has not connected; rank 3 was refused: wrong "
                                                   "token (127.0.0.1:"));
  }
  EXPECT_EQ(stars[2].status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(Star, SaysWhyRankZeroCannotBeReached) {
  StarOptions options = TestOptions(1, 2, "");
  options.timeout_seconds = 0.2;
  options.address = FreeAddress();
  EXPECT_EQ(Text(Star::Connect(options).status()),
            fmt::format("rank 1 cannot reach rank 0 at {}: connection refused; tried for 0.2 s",
                        options.address));
  options.address = "no-such-host.invalid:4711";
  const StarResult unknown = Star::Connect(options);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(unknown.status()), HasSubstr("rank 0 at no-such-host.invalid:4711: "));
  options.address = "";
  options.file = "/nowhere/meet";
  EXPECT_THAT(Text(Star::Connect(options).status()), HasSubstr("/nowhere/meet does not exist"));
}

TEST(Star, WaitsNoLongerOnceCancelled) {
  Cancellation cancellation;
  const std::string address = FreeAddress();
  std::vector<StarOptions> options;
  for (const int rank : {0, 1}) {
    options.push_back(TestOptions(rank, 3, ""));
    options.back().address = address;
    options.back().timeout_seconds = 600;
    options.back().cancellation = &cancellation;
  }
  options.push_back(options[1]);  // one that finds nobody
  options.back().address = FreeAddress();
  const int64_t start = NowNanos();
  std::vector<StarResult> stars(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { stars[i] = Star::Connect(options[i]); });
  }
  cancellation.Cancel(Cancelled("enough"));
  for (std::thread& thread : threads) thread.join();
  for (const StarResult& star : stars) {
    EXPECT_EQ(star.status().code(), absl::StatusCode::kCancelled) << star.status();
    EXPECT_THAT(Text(star.status()), HasSubstr("enough"));
  }
  EXPECT_LT(NowNanos() - start, int64_t{60'000'000'000});
}

TEST(Star, ChecksItsOptions) {
  const auto error = [](const std::function<void(StarOptions*)>& change) {
    StarOptions options = TestOptions(0, 2, "/tmp/unused");
    change(&options);
    const StarResult star = Star::Connect(options);
    EXPECT_EQ(star.status().code(), absl::StatusCode::kInvalidArgument);
    return Text(star.status());
  };
  EXPECT_EQ(error([](StarOptions* o) { o->rank = 2; }), "rank 2 of 2, expected 0 to 1");
  EXPECT_THAT(error([](StarOptions* o) { o->size = 0; }), HasSubstr("0 ranks"));
  EXPECT_THAT(error([](StarOptions* o) { o->job = "a\nb"; }), HasSubstr("job 'a\\x0ab'"));
  EXPECT_THAT(error([](StarOptions* o) { o->file = ""; }), HasSubstr("give one of them"));
  EXPECT_THAT(error([](StarOptions* o) { o->timeout_seconds = 0.0 / 0.0; }),
              HasSubstr("timeout_seconds"));
  EXPECT_THAT(error([](StarOptions* o) { o->silence_seconds = 0; }), HasSubstr("silence_seconds"));
  EXPECT_THAT(error([](StarOptions* o) { o->file = "", o->address = "localhost"; }),
              HasSubstr("'localhost' is no address: no port"));
  EXPECT_THAT(error([](StarOptions* o) { o->file = "", o->address = "localhost:0"; }),
              HasSubstr("port 0"));
}

TEST(Star, PassesByTheFileOfAnEarlierJob) {
  const TestFolder folder;
  const std::string path = folder.File("meet");
  for (const MeetingFile& stale :
       {MeetingFile{FreeAddress(), "test", 0}, MeetingFile{FreeAddress(), "test", 3},
        MeetingFile{FreeAddress(), "another", 0}}) {
    ASSERT_TRUE(WriteMeetingFile(path, stale).ok());
    StarResult spoke;
    std::thread thread([&] { spoke = Star::Connect(TestOptions(1, 2, path)); });
    const StarResult hub = Star::Connect(TestOptions(0, 2, path));
    thread.join();
    EXPECT_TRUE(hub.ok()) << hub.status();
    EXPECT_TRUE(spoke.ok()) << spoke.status();
  }
  std::ofstream(path) << "something else\n";
  StarOptions options = TestOptions(1, 2, path);
  options.timeout_seconds = 0.1;
  EXPECT_THAT(Text(Star::Connect(options).status()), HasSubstr("is no file that rank 0 wrote"));
}

TEST(Star, SaysWhoListensAlready) {
  const std::string address = FreeAddress();
  const auto busy = Listen(Resolve(*ParseEndpoint(address))->front());
  ASSERT_TRUE(busy.ok());
  StarOptions options = TestOptions(0, 2, "");
  options.address = address;
  EXPECT_EQ(Text(Star::Connect(options).status()),
            fmt::format("rank 0: cannot listen at {}: address already in use", address));
}

// Strangers at the door: none of them keeps the ranks out.
TEST(Star, IsNotStoppedByStrangers) {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 2300) GTEST_SKIP() << "the limit of open files is too low";
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 2300);
  setrlimit(RLIMIT_NOFILE, &files);

  const std::string address = FreeAddress();
  auto options = TestRanks(2, "");
  for (StarOptions& each : options) each.address = address;
  StarResult hub;
  std::thread thread([&] { hub = Star::Connect(options[0]); });
  const Address target = Resolve(*ParseEndpoint(address))->front();
  const int64_t deadline = NowNanos() + 20'000'000'000;
  std::vector<Socket> strangers;
  while (strangers.size() < 1000 && NowNanos() < deadline) {
    absl::StatusOr<Socket> stranger = Connect(target, deadline);
    if (stranger.ok()) strangers.push_back(*std::move(stranger));
  }
  EXPECT_EQ(strangers.size(), 1000u);
  // The last ones are not only idle: garbage, a part of a handshake, a huge length.
  std::string hello;
  Identity identity;
  identity.job = "test";
  identity.rank = 1;
  identity.size = 2;
  Handshake(identity, true, 0).Start(&hello);
  std::string huge = hello.substr(0, 12) + std::string("\x01\x00\xff\xff", 4);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), hello.substr(0, 20),
                                   hello, huge, std::string(100'000, '\0')}) {
    absl::StatusOr<Socket> stranger = Connect(target, deadline);
    ASSERT_TRUE(stranger.ok());
    WriteSome(stranger->fd(), bytes);
    strangers.push_back(*std::move(stranger));
  }
  const StarResult spoke = Star::Connect(options[1]);
  thread.join();
  EXPECT_TRUE(hub.ok()) << hub.status();
  EXPECT_TRUE(spoke.ok()) << spoke.status();
}

TEST(Star, ARankMayComeAgainBeforeTheStart) {
  const TestFolder folder;
  const std::string path = folder.File("meet");
  StarResult hub, last;
  std::thread hub_thread([&] { hub = Star::Connect(TestOptions(0, 3, path)); });
  StarOptions impatient = TestOptions(1, 3, path);
  impatient.timeout_seconds = 0.3;
  const StarResult early = Star::Connect(impatient);
  EXPECT_THAT(Text(early.status()), HasSubstr("rank 2 has not connected"));
  EXPECT_THAT(Text(early.status()), Not(HasSubstr("rank 1 has not")));
  std::thread last_thread([&] { last = Star::Connect(TestOptions(2, 3, path)); });
  const StarResult again = Star::Connect(TestOptions(1, 3, path));
  hub_thread.join();
  last_thread.join();
  EXPECT_TRUE(hub.ok() && again.ok() && last.ok())
      << hub.status() << again.status() << last.status();
}

}  // namespace
}  // namespace tutti::net
