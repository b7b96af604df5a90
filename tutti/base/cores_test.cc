#include "tutti/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <thread>

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
  moved.set_value();
  EXPECT_EQ(seen.get_future().get(), 1);
  other.join();
  EXPECT_TRUE(RunOnCores(all).ok());
  EXPECT_EQ(NumbersOfUsableCores(), all);
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

}  // namespace
}  // namespace tutti
