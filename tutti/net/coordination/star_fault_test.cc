// Ranks as processes that are killed and stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "tutti/base/clock.h"
#include "tutti/net/coordination/star_test_ranks.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPatienceNanos = 30'000'000'000;

// A rank in a process of its own. It writes a line when all ranks are there, and one when it knows
// the verdict; then it waits to be killed.
class RankProcess {
 public:
  using Body = std::function<void(Star& star)>;  // after the start
  RankProcess(const StarOptions& options, const Body& body = nullptr) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      Live(options, body, ends[1]);
    }
    close(ends[1]);
    lines_ = Socket(ends[0]);
  }
  RankProcess(RankProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), lines_(std::move(other.lines_)) {}
  ~RankProcess() { Kill(); }

  pid_t pid() const { return pid_; }
  void Signal(int number) const { kill(pid_, number); }
  // Kills it, and returns when its connections are closed.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string Line() {
    std::string line;
    const int64_t deadline = NowNanos() + kPatienceNanos;
    while (WaitFor(lines_.fd(), POLLIN, deadline).ok()) {
      char c = 0;
      if (read(lines_.fd(), &c, 1) != 1) return line + "(ended)";
      if (c == '\n') return line;
      line.push_back(c);
    }
    return line + "(nothing)";
  }

 private:
  [[noreturn]] static void Live(const StarOptions& options, const Body& body, int out) {
    const auto say = [out](const std::string& line) {
      if (write(out, (line + "\n").data(), line.size() + 1) < 0) _exit(1);
    };
    StarResult star = Star::Connect(options);
    say(star.ok() ? "ready" : Text(star.status()));
    if (star.ok()) {
      (*star)->OnFailure([&](int rank, const absl::Status& status) {
        say(fmt::format("{} {} {}", rank, absl::StatusCodeToString(status.code()), Text(status)));
      });
      if (body != nullptr) body(**star);
    }
    while (true) pause();
  }

  pid_t pid_ = -1;
  Socket lines_;
};

std::vector<RankProcess> StartRanks(int size, const std::string& file, double silence = 20,
                                    const RankProcess::Body& body = nullptr) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    StarOptions options = TestOptions(rank, size, file);
    options.silence_seconds = silence;
    ranks.emplace_back(options, body);
  }
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.Line(), "ready");
  return ranks;
}

TEST(StarFault, EveryRankNamesTheOneThatDied) {
  constexpr int kSize = 4;
  for (int victim = 0; victim < kSize; ++victim) {
    const TestFolder folder;
    auto ranks = StartRanks(kSize, folder.File("meet"));
    const pid_t pid = ranks[static_cast<size_t>(victim)].pid();
    ranks[static_cast<size_t>(victim)].Kill();
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[static_cast<size_t>(rank)].Line(),
                fmt::format("{0} UNAVAILABLE rank {0} (host 127.0.0.1, pid {1}) died: its "
                            "connection closed",
                            victim, pid));
    }
  }
}

TEST(StarFault, EveryRankNamesTheOneThatStopped) {
  for (const size_t victim : {0, 2}) {
    const TestFolder folder;
    auto ranks = StartRanks(3, folder.File("meet"), /*silence=*/1);
    const std::string expected = fmt::format(
        "{0} DEADLINE_EXCEEDED rank {0} (host 127.0.0.1, pid {1}) has given no sign of life for ",
        victim, ranks[victim].pid());
    ranks[victim].Signal(SIGSTOP);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(ranks[rank].Line(), ::testing::StartsWith(expected));
    }
    // When it wakes up, it learns what the others said of it.
    ranks[victim].Signal(SIGCONT);
    EXPECT_THAT(ranks[victim].Line(), ::testing::StartsWith(expected));
  }
}

// Stopped for less than the limit: nobody minds. The line each rank gives later shows that none
// came before.
TEST(StarFault, AShortStopIsForgiven) {
  const TestFolder folder;
  auto ranks = StartRanks(3, folder.File("meet"), /*silence=*/5);
  ranks[0].Signal(SIGSTOP);
  ranks[1].Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // more than a heartbeat
  ranks[0].Signal(SIGCONT);
  ranks[1].Signal(SIGCONT);
  ranks[2].Kill();
  EXPECT_THAT(ranks[0].Line(), HasSubstr("2 UNAVAILABLE"));
  EXPECT_THAT(ranks[1].Line(), HasSubstr("2 UNAVAILABLE"));
}

TEST(StarFault, TheFirstCauseWins) {
  const TestFolder folder;
  auto ranks = StartRanks(5, folder.File("meet"));
  ranks[3].Kill();
  const std::string first = ranks[0].Line();
  ranks[1].Kill();
  EXPECT_THAT(first, HasSubstr("3 UNAVAILABLE rank 3"));
  EXPECT_EQ(ranks[2].Line(), first);
  EXPECT_EQ(ranks[4].Line(), first);
}

TEST(StarFault, DeathsAtOnceHaveOneVerdict) {
  const TestFolder folder;
  auto ranks = StartRanks(5, folder.File("meet"));
  ranks[1].Signal(SIGKILL);
  ranks[4].Signal(SIGKILL);
  const std::string verdict = ranks[0].Line();
  EXPECT_THAT(verdict, testing::AnyOf(HasSubstr("rank 1 ("), HasSubstr("rank 4 (")));
  EXPECT_EQ(ranks[2].Line(), verdict);
  EXPECT_EQ(ranks[3].Line(), verdict);
}

// Rank 0 dies in the very moment in which it has told its verdict: the verdict counts, not the end
// of its connection.
TEST(StarFault, AVerdictOutlivesItsJudge) {
  for (int round = 0; round < 5; ++round) {
    const TestFolder folder;
    auto ranks = StartRanks(3, folder.File("meet"), 20, [](Star& star) {
      if (star.rank() != 0) return;
      star.OnFailure([](int, const absl::Status&) { raise(SIGKILL); });
      star.ReportFailure(DataLoss("a bit flipped"));
    });
    EXPECT_EQ(ranks[1].Line(), "-1 DATA_LOSS a bit flipped");
    EXPECT_EQ(ranks[2].Line(), "-1 DATA_LOSS a bit flipped");
  }
}

TEST(StarFault, ALossIsExplainedByTheDeathBehindIt) {
  const TestFolder folder;
  const std::string file = folder.File("meet");
  std::vector<RankProcess> ranks;
  ranks.emplace_back(TestOptions(1, 3, file));
  ranks.emplace_back(TestOptions(2, 3, file));
  const StarResult hub = Star::Connect(TestOptions(0, 3, file));
  ASSERT_TRUE(hub.ok()) << hub.status();
  const Verdict verdict(hub->get());
  (*hub)->ReportLost(2, Unavailable("connection reset by peer"));
  ranks[1].Kill();
  EXPECT_THAT(Text(verdict.Wait().second), HasSubstr("died: its connection closed"));
}

// What rank 0 says to rank 2 of who is missing, once that fits.
std::string MissingRanks(const StarOptions& options, const std::function<bool(std::string)>& fits) {
  std::string text;
  const int64_t deadline = NowNanos() + kPatienceNanos;
  do {
    text = Text(Star::Connect(options).status());
  } while (!fits(text) && NowNanos() < deadline);
  return text;
}

TEST(StarFault, ADeathBeforeTheStartIsListed) {
  const TestFolder folder;
  const RankProcess hub(TestOptions(0, 4, folder.File("meet")));
  RankProcess rank(TestOptions(1, 4, folder.File("meet")));
  StarOptions witness = TestOptions(2, 4, folder.File("meet"));
  witness.timeout_seconds = 0.3;
  MissingRanks(witness, [](const std::string& text) {
    return text.find("1 of 4 ranks of job 'test' are missing: rank 3") != std::string::npos;
  });
  const std::string expected = fmt::format(
      "rank 1 had connected (host 127.0.0.1, pid {}), but its connection closed", rank.pid());
  rank.Kill();
  EXPECT_THAT(MissingRanks(
                  witness,
                  [](const std::string& text) { return text.find("rank 1") != std::string::npos; }),
              HasSubstr(expected));
}

// With hardly a descriptor left, rank 0 sends strangers away and lets the ranks in.
TEST(StarFault, IsNotStoppedByALackOfDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers check pointers through descriptors of their own";
#endif
  const std::string address = FreeAddress();
  StarOptions options = TestOptions(0, 2, "");
  options.address = address;
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 24;
  setrlimit(RLIMIT_NOFILE, &low);
  RankProcess hub(options);
  setrlimit(RLIMIT_NOFILE, &before);
  const Address target = Resolve(*ParseEndpoint(address))->front();
  const int64_t deadline = NowNanos() + kPatienceNanos;
  std::vector<Socket> strangers;
  while (strangers.size() < 100 && NowNanos() < deadline) {
    absl::StatusOr<Socket> stranger = Connect(target, deadline);
    if (stranger.ok()) strangers.push_back(*std::move(stranger));
  }
  options.rank = 1;
  const StarResult spoke = Star::Connect(options);
  EXPECT_TRUE(spoke.ok()) << spoke.status();
  EXPECT_EQ(hub.Line(), "ready");
}

}  // namespace
}  // namespace tutti::net
