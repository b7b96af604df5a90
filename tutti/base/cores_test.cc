#include "tutti/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <span>
#include <string>
#include <thread>

#include "tutti/base/spin.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cores = std::vector<int>;
using Shares = std::vector<Cores>;

const Cores kFour = {0, 1, 2, 3};

TEST(ShareOfCores, IsInOnePieceAndEven) {
  EXPECT_EQ(ShareOfCores(kFour, 0, 2), (Cores{0, 1}));
  EXPECT_EQ(ShareOfCores(kFour, 1, 2), (Cores{2, 3}));
  EXPECT_EQ(ShareOfCores(kFour, 2, 3), (Cores{2, 3}));
  EXPECT_EQ(ShareOfCores(kFour, 0, 1), kFour);
}

TEST(ShareOfCores, GoInTurnWhereThereAreTooFew) {
  const Cores two = {4, 6};
  EXPECT_EQ(ShareOfCores(two, 0, 3), Cores{4});
  EXPECT_EQ(ShareOfCores(two, 1, 3), Cores{6});
  EXPECT_EQ(ShareOfCores(two, 2, 3), Cores{4});
  EXPECT_THAT(ShareOfCores({}, 0, 2), IsEmpty());
}

TEST(DivideCores, GivesEachProcessOfAHostItsShare) {
  const std::vector<CoreClaim> claims = {{"a", kFour}, {"a", kFour}};
  EXPECT_THAT(DivideCores(claims), ElementsAre(Cores{0, 1}, Cores{2, 3}));
}

TEST(DivideCores, LeavesOtherHostsAlone) {
  const std::vector<CoreClaim> claims = {{"a", kFour}, {"b", kFour}, {"a", kFour}};
  EXPECT_THAT(DivideCores(claims), ElementsAre(Cores{0, 1}, kFour, Cores{2, 3}));
}

TEST(DivideCores, RespectsCoresThatALauncherDivided) {
  const std::vector<CoreClaim> claims = {{"a", {0}}, {"a", {1, 2}}};
  EXPECT_THAT(DivideCores(claims), ElementsAre(Cores{0}, Cores{1, 2}));
}

TEST(DivideCores, DividesPartsThatSeveralShare) {
  // Two launchers' jobs in one: two processes on each half.
  const std::vector<CoreClaim> claims = {
      {"a", {0, 1}}, {"a", {2, 3}}, {"a", {0, 1}}, {"a", {2, 3}}};
  EXPECT_THAT(DivideCores(claims), ElementsAre(Cores{0}, Cores{2}, Cores{1}, Cores{3}));
}

TEST(DivideCores, GivesAContestedCoreToWhoHasFewer) {
  const std::vector<CoreClaim> claims = {{"a", {0, 1, 2}}, {"a", {2, 3}}};
  EXPECT_THAT(DivideCores(claims), ElementsAre(Cores{0, 1}, Cores{2, 3}));
}

TEST(DivideCores, LeavesNobodyWithoutACore) {
  const std::vector<CoreClaim> claims = {{"a", {0}}, {"a", {0}}, {"a", {0, 1}}};
  for (const Cores& share : DivideCores(claims)) EXPECT_FALSE(share.empty());
  EXPECT_THAT(DivideCores({}), IsEmpty());
  const std::vector<CoreClaim> unknown = {{"a", {}}, {"a", {0}}};
  EXPECT_THAT(DivideCores(unknown), ElementsAre(Cores{}, Cores{0}));
}

TEST(RunOnCores, MovesThreadsThatAreThereAlready) {
  const Cores all = NumbersOfUsableCores();
  ASSERT_FALSE(all.empty());
  std::promise<void> moved;
  std::promise<int> seen;
  std::thread other([&] {
    moved.get_future().wait();
    seen.set_value(UsableCores());
  });
  EXPECT_TRUE(RunOnCores(Cores{all.back()}).ok());
  EXPECT_EQ(NumbersOfUsableCores(), Cores{all.back()});
  EXPECT_TRUE(HasOneCore());
  moved.set_value();
  EXPECT_EQ(seen.get_future().get(), 1);
  other.join();
  EXPECT_TRUE(RunOnCores(all).ok());
  EXPECT_EQ(NumbersOfUsableCores(), all);
  EXPECT_EQ(HasOneCore(), UsableCores() == 1);
}

// Its other threads may run elsewhere.
TEST(HasOneCore, APinnedThreadIsNotAPinnedProcess) {
  if (UsableCores() == 1) GTEST_SKIP() << "needs two cores";
  const Cores first = {NumbersOfUsableCores().front()};
  std::thread([&first] {
    ASSERT_TRUE(RunThreadOnCores(first).ok());
    EXPECT_EQ(UsableCores(), 1);
    EXPECT_FALSE(HasOneCore());
  }).join();
}

// Whoever brings what is looked for gets the core: with two threads that take turns on one core,
// each look that only spun would cost its whole time.
TEST(LookFor, GivesTheOnlyCoreToWhoeverIsWaitedFor) {
  const Cores all = NumbersOfUsableCores();
  ASSERT_TRUE(RunOnCores(Cores{all.front()}).ok());
  constexpr int kTurns = 1000;
  constexpr int64_t kLong = 1'000'000'000'000;
  std::atomic<int> turn = 0;
  const auto play = [&turn](int own) {
    for (; own < kTurns; own += 2) {
      ASSERT_TRUE(LookFor([&] { return turn.load() == own; }, {.spin_nanos = kLong}));
      turn.store(own + 1);
    }
  };
  const auto cpu_seconds = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  };
  const double start = cpu_seconds();
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), kTurns);
  // Some milliseconds; a slice of the scheduler for each turn would be seconds.
  EXPECT_LT(cpu_seconds() - start, 1.0);
  EXPECT_TRUE(RunOnCores(all).ok());
}

TEST(RunOnCores, NamesACoreThatCannotBe) {
  EXPECT_THAT(std::string(MessageOf(RunOnCores(Cores{-1}))), HasSubstr("core -1: expected 0 to"));
}

TEST(Cores, MovesAThreadAndLeavesItFree) {
  const std::vector<int> usable = NumbersOfUsableCores();
  ASSERT_FALSE(usable.empty());
  std::thread mover([&] {
    for (const int core : {usable.back(), usable.front()}) {
      const int cores[] = {core};
      MoveThreadTo(cores);
      EXPECT_EQ(NumbersOfUsableCores(), usable);
    }
    const int none[] = {CPU_SETSIZE - 1};
    MoveThreadTo(none);  // no such core: nothing happens
    EXPECT_EQ(NumbersOfUsableCores(), usable);
    ASSERT_TRUE(RunThreadOnCores(std::span(usable).first(1)).ok());
    EXPECT_EQ(NumbersOfUsableCores(), std::vector<int>{usable.front()});
  });
  mover.join();
  EXPECT_EQ(NumbersOfUsableCores(), usable) << "only that thread";
}

// Files as the kernel shows them.
class CgroupCoresTest : public ::testing::Test {
 protected:
  CgroupCoresTest() {
    std::string name = ::testing::TempDir() + "cgroup_XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~CgroupCoresTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(CgroupCoresTest, UsableCoresAreListedByNode) {
  const std::vector<int> usable = NumbersOfUsableCores();
  EXPECT_THAT(UsableCoresByNode(root_), ElementsAre(usable)) << "the system does not tell";
  // The first usable core in node 1, the others in node 0, and none in node 2.
  std::string others;
  for (size_t i = 1; i < usable.size(); ++i)
    others += (i > 1 ? "," : "") + std::to_string(usable[i]);
  Write("/sys/devices/system/node/node0/cpulist", others + "\n");
  Write("/sys/devices/system/node/node1/cpulist",
        std::to_string(usable.front()) + "-" + std::to_string(usable.front()) + "\n");
  Write("/sys/devices/system/node/node2/cpulist", "\n");
  Write("/sys/devices/system/node/online", "0-2\n");
  std::vector<std::vector<int>> expected = {{usable.begin() + 1, usable.end()}, {usable.front()}};
  if (usable.size() == 1) expected.erase(expected.begin());
  EXPECT_EQ(UsableCoresByNode(root_), expected);
}

TEST_F(CgroupCoresTest, NoGroupOrNoLimitIsAllThereIs) {
  EXPECT_EQ(CgroupCores(root_), 0);
  Write("/proc/self/cgroup", "0::/job\n");
  EXPECT_EQ(CgroupCores(root_), 0);
  Write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCores(root_), 0);
}

TEST_F(CgroupCoresTest, TheSmallestOnTheWayUpCounts) {
  Write("/proc/self/cgroup", "0::/pods/job\n");
  Write("/sys/fs/cgroup/pods/job/cpu.max", "300000 100000\n");
  EXPECT_EQ(CgroupCores(root_), 3);
  Write("/sys/fs/cgroup/pods/cpu.max", "150000 100000\n");
  EXPECT_EQ(CgroupCores(root_), 1.5);
}

TEST_F(CgroupCoresTest, AContainerSeesItsOwnGroupAsTheRoot) {
  Write("/proc/self/cgroup", "0::/../../of/the/host\n");
  Write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCores(root_), 2);
}

TEST_F(CgroupCoresTest, Version1) {
  Write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/job\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCores(root_), 2.5);
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupCores(root_), 0);
}

}  // namespace
}  // namespace tutti
