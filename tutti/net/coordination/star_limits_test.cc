// What happens at the limits of the system: the rank that meets one says which, at once, and no
// other rank takes it for dead.
#include <sys/resource.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tutti/net/coordination/meeting_file.h"
#include "tutti/net/coordination/star_test_ranks.h"
#include "tutti/net/socket.h"
#include "tutti/testing/no_threads.h"

namespace tutti::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// While it lives this process may open `more` descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    std::vector<Socket> next;  // the lowest numbers that are free
    for (int i = 0; i < more; ++i) next.emplace_back(dup(STDIN_FILENO));
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.back().fd() + 1);
    next.clear();
    setrlimit(RLIMIT_NOFILE, &few);
    EXPECT_EQ(DescriptorsLeft(), more);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Rank 0 of two, which waits for the other.
class WaitingHub {
 public:
  WaitingHub() {
    thread_ =
        std::thread([this] { star_ = Star::Connect(TestOptions(0, 2, folder_.File("meet"))); });
    while (!ReadMeetingFile(folder_.File("meet")).ok()) std::this_thread::yield();
  }
  ~WaitingHub() { Join(); }

  StarResult ConnectRankOne() { return Star::Connect(TestOptions(1, 2, folder_.File("meet"))); }
  StarResult& Join() {
    if (thread_.joinable()) thread_.join();
    return star_;
  }

 private:
  TestFolder folder_;
  StarResult star_;
  std::thread thread_;
};

TEST(StarLimits, ARankWithoutDescriptorsNamesTheLimitAtOnce) {
  WaitingHub hub;
  // Without an event loop; and with one, but without a socket.
  for (const int more : {1, 2}) {
    const FewDescriptors few(more);
    const StarResult star = hub.ConnectRankOne();
    EXPECT_EQ(star.status().code(), absl::StatusCode::kResourceExhausted) << star.status();
    EXPECT_THAT(Text(star.status()), AllOf(HasSubstr("rank 1: "), HasSubstr("too many open files"),
                                           HasSubstr("ulimit -n")));
  }
  const StarResult star = hub.ConnectRankOne();
  EXPECT_TRUE(star.ok()) << star.status();
  EXPECT_TRUE(hub.Join().ok()) << hub.Join().status();
}

TEST(StarLimits, RankZeroTellsAtOnceThatItCannotAcceptSoManyRanks) {
  const TestFolder folder;
  const FewDescriptors few(8);  // its own and some, but not 20
  const StarResult star = Star::Connect(TestOptions(0, 21, folder.File("meet")));
  EXPECT_EQ(star.status().code(), absl::StatusCode::kResourceExhausted) << star.status();
  EXPECT_THAT(Text(star.status()),
              AllOf(HasSubstr("rank 0: connections of 20 ranks need 20 descriptors, "),
                    HasSubstr("ulimit -n")));
}

TEST(StarLimits, ARankWithoutAThreadSaysSoToAll) {
  WaitingHub hub;
  {
    const testing::NoThreads none;
    const StarResult star = hub.ConnectRankOne();
    EXPECT_EQ(star.status().code(), absl::StatusCode::kResourceExhausted) << star.status();
    EXPECT_THAT(Text(star.status()), HasSubstr("cannot start the thread \"tutti-star\""));
  }
  ASSERT_TRUE(hub.Join().ok()) << hub.Join().status();
  const auto [rank, status] = Verdict(hub.Join()->get()).Wait();
  EXPECT_EQ(rank, kNoRank);
  EXPECT_THAT(Text(status), HasSubstr("rank 1: cannot start the thread"));
}

TEST(StarLimits, RankZeroWithoutAThreadIsNoException) {
  const TestFolder folder;
  const testing::NoThreads none;
  const StarResult star = Star::Connect(TestOptions(0, 2, folder.File("meet")));
  EXPECT_THAT(Text(star.status()), HasSubstr("cannot start the thread \"tutti-star\""));
  EXPECT_FALSE(ReadMeetingFile(folder.File("meet")).ok()) << "it was left behind";
}

}  // namespace
}  // namespace tutti::net
