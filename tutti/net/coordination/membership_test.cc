// Membership and what is built on it, over a remote store whose service is in this process.
#include "tutti/net/coordination/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/gathering.h"
#include "tutti/net/coordination/store/remote_store.h"
#include "tutti/net/coordination/store/service.h"
#include "tutti/testing/no_threads.h"

namespace tutti::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kPs = "/job:ps/task:0";
constexpr const char* kWorker0 = "/job:worker/task:0";
constexpr const char* kWorker1 = "/job:worker/task:1";
constexpr double kCeiling = 60;  // seconds

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

class MembershipTest : public ::testing::Test {
 protected:
  MembershipOptions OptionsOf(const std::string& task, uint64_t incarnation = 1) {
    const std::string caller = fmt::format("{}#{}", task, incarnation);
    return {.store = std::make_shared<RemoteStore>(
                [this, caller](std::string request, StoreService::Done done) {
                  service_.Handle(caller, request, std::move(done));
                }),
            .task = task,
            .incarnation = incarnation,
            .place = fmt::format("pid {}", 100 + incarnation),
            .tasks = {kPs, kWorker0, kWorker1},
            .fingerprint = {"cluster.ps[0]=h0:1", "cluster.worker[0]=h1:1"}};
  }
  std::unique_ptr<Membership> Join(const std::string& task, uint64_t incarnation = 1) {
    return ValueOrThrow(Membership::Join(OptionsOf(task, incarnation)));
  }
  // The process is gone.
  void Kill(std::unique_ptr<Membership>& membership, uint64_t incarnation = 1) {
    const std::string caller = fmt::format("{}#{}", membership->task(), incarnation);
    membership->Abandon(Unavailable("killed"));
    membership.reset();
    service_.CallerLost(caller);
  }

  MemoryStore memory_;
  StoreService service_{&memory_};
};

TEST_F(MembershipTest, AllComeAndAreKnown) {
  auto ps = Join(kPs);
  auto all = std::async(std::launch::async, [&] { return ps->AwaitAll(kCeiling); });
  auto worker0 = Join(kWorker0);
  auto worker1 = Join(kWorker1);
  EXPECT_TRUE(all.get().ok());
  const std::vector<Member> members = ValueOrThrow(worker1->Members());
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[1].task, kWorker0);
  EXPECT_EQ(members[1].incarnation, 1u);
  EXPECT_EQ(members[1].place, "pid 101");
  EXPECT_EQ(members[1].revision, worker0->revision());
}

TEST_F(MembershipTest, WithoutAThreadNobodyJoins) {
  MembershipOptions options = OptionsOf(kPs);
  {
    const testing::NoThreads none;
    EXPECT_THAT(
        TextOf(Membership::Join(options).status()),
        HasSubstr("/job:ps/task:0 cannot join the job: cannot start the thread that keeps a "
                  "task's place in its job"));
  }
  // Its place is free again.
  EXPECT_TRUE(Membership::Join(options).ok());
}

TEST_F(MembershipTest, WhoIsMissingAndWhy) {
  auto ps = Join(kPs);
  auto worker0 = Join(kWorker0);
  Kill(worker0);
  EXPECT_THAT(TextOf(ps->AwaitAll(0.01)),
              HasSubstr("2 of 3 tasks are missing after 0.01 s; /job:worker/task:0 is lost: it was "
                        "at pid 101; /job:worker/task:1 has not come"));
  // Two that leave: one in good order, one because it failed.
  worker0 = Join(kWorker0, 2);
  auto worker1 = Join(kWorker1);
  worker0.reset();
  worker1->Fail(DataLoss("no memory"));
  worker1.reset();
  const absl::Status late = ps->AwaitAll(0.5);
  EXPECT_THAT(TextOf(late), HasSubstr("/job:worker/task:0 left in good order"));
  EXPECT_THAT(TextOf(late), HasSubstr("/job:worker/task:1 failed: no memory"));
}

TEST_F(MembershipTest, TellsWhoIsGone) {
  std::array<std::promise<Departure>, 3> told;
  MembershipOptions options = OptionsOf(kPs);
  options.gone = [&, count = size_t{0}](const Departure& departure) mutable {
    told.at(count++).set_value(departure);
  };
  auto ps = ValueOrThrow(Membership::Join(std::move(options)));
  auto worker0 = Join(kWorker0), worker1 = Join(kWorker1, 7);
  worker0.reset();
  const Departure left = told[0].get_future().get();
  EXPECT_EQ(left.task, kWorker0);
  EXPECT_EQ(left.how, Departure::How::kLeft);
  EXPECT_EQ(TextOf(ps->ViewOf(kWorker0).gone), "left in good order");
  Kill(worker1, 7);
  const Departure lost = told[1].get_future().get();
  EXPECT_EQ(lost.task, kWorker1);
  EXPECT_EQ(lost.incarnation, 7u);
  EXPECT_EQ(lost.how, Departure::How::kLost);
  EXPECT_FALSE(ps->KnownFailure().has_value());
  worker0 = Join(kWorker0, 2);
  worker0->Fail(DataLoss("no memory,\nand no disk"));
  const Departure failed = told[2].get_future().get();
  EXPECT_EQ(failed.incarnation, 2u);
  EXPECT_EQ(failed.how, Departure::How::kFailed);
  EXPECT_EQ(failed.why, DataLoss("no memory,\nand no disk"));
  EXPECT_EQ(ps->KnownFailure()->why, failed.why);
  EXPECT_EQ(ps->KnownFailure()->task, kWorker0);
}

// The failures of an earlier life of the job are not this one's.
TEST_F(MembershipTest, OldFailuresAreNotTold) {
  auto worker0 = Join(kWorker0);
  worker0->Fail(DataLoss("no memory"));
  auto ps = Join(kPs);
  EXPECT_TRUE(ps->Put("something", "to be told").ok());
  EXPECT_FALSE(ps->KnownFailure().has_value());
  EXPECT_TRUE(ValueOrThrow(ps->FirstFailure()).has_value());
}

TEST_F(MembershipTest, AMemberAsksAllToStop) {
  auto worker0 = Join(kWorker0);
  auto ps = Join(kPs);
  EXPECT_FALSE(worker0->KnownStopRequest().has_value());
  // What is no signal is nobody's request.
  const std::string key = fmt::format("tutti/stop{}", kWorker1);
  for (const char* bad : {"", "0", "-15", "65", "15x", "99999999999999999999"}) {
    EXPECT_TRUE(memory_.Put(key, bad).ok());
  }
  ps->AskToStop(15);
  ps->AskToStop(2);
  const auto known = [&] { return absl::StatusOr<bool>(worker0->KnownStopRequest().has_value()); };
  EXPECT_TRUE(ValueOrThrow(worker0->AwaitChange(NowNanos() + int64_t(kCeiling * 1e9), known)));
  EXPECT_EQ(worker0->KnownStopRequest()->task, kPs);
  EXPECT_EQ(worker0->KnownStopRequest()->signal, 15);
  // Who comes later was not asked, and the request goes with whoever made it.
  auto worker1 = Join(kWorker1);
  EXPECT_TRUE(worker1->Put("something", "to be told").ok());
  EXPECT_FALSE(worker1->KnownStopRequest().has_value());
  ps.reset();
  EXPECT_EQ(ValueOrThrow(worker0->List(fmt::format("stop{}", kPs))).entries.size(), 0u);
}

// The first one answers, long before its lease would be over.
TEST_F(MembershipTest, ASecondProcessOfATaskIsRefused) {
  MembershipOptions options = OptionsOf(kPs, 1);
  options.lease_seconds = 600;
  auto first = ValueOrThrow(Membership::Join(options));
  options = OptionsOf(kPs, 2);
  options.lease_seconds = 600;
  const int64_t began = NowNanos();
  const absl::Status refused = Membership::Join(options).status();
  EXPECT_LT(double(NowNanos() - began) * 1e-9, kCeiling);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(TextOf(refused), HasSubstr("/job:ps/task:0 is taken by another process, pid 101 "
                                         "(incarnation 1)"));
  EXPECT_TRUE(first->CheckFence(kPs, first->revision()).ok());
  // A third time: the answer to the second is not taken for one to the third.
  service_.CallerLost("/job:ps/task:0#1");
  first->Abandon(Unavailable("killed"));
  auto third = Membership::Join(OptionsOf(kPs, 3));
  EXPECT_TRUE(third.ok()) << third.status();
}

// Whoever was connected to it says so, and nobody waits for the end of the lease.
TEST_F(MembershipTest, AMemberThatIsReportedLostIsLost) {
  std::promise<Departure> told;
  MembershipOptions options = OptionsOf(kPs);
  options.gone = [&](const Departure& departure) { told.set_value(departure); };
  auto ps = ValueOrThrow(Membership::Join(std::move(options)));
  std::promise<absl::Status> lost;
  options = OptionsOf(kWorker0, 2);
  options.lease_seconds = 600;
  options.lost = [&](const absl::Status& why) { lost.set_value(why); };
  auto worker0 = ValueOrThrow(Membership::Join(std::move(options)));
  ps->ReportLost(kWorker0, 1);  // another incarnation, which is gone already
  ps->ReportLost(kWorker0, 2);
  const Departure departure = told.get_future().get();
  EXPECT_EQ(departure.task, kWorker0);
  EXPECT_EQ(departure.incarnation, 2u);
  EXPECT_THAT(TextOf(lost.get_future().get()), HasSubstr("has lost its place"));
  EXPECT_EQ(worker0->Standing().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(worker0->Put("result", "stale").code(), absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, AnEmptiedStoreIsTold) {
  std::promise<absl::Status> lost;
  MembershipOptions options = OptionsOf(kWorker0);
  options.lease_seconds = 600;
  options.lost = [&](const absl::Status& why) { lost.set_value(why); };
  auto member = ValueOrThrow(Membership::Join(std::move(options)));
  for (const StoreEntry& entry : ValueOrThrow(memory_.List("")).entries) {
    (void)memory_.Delete(entry.key, std::nullopt);
  }
  const absl::Status why = lost.get_future().get();
  EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TextOf(why), HasSubstr("has lost its place: its key is gone from the store, which "
                                     "was emptied"));
}

TEST_F(MembershipTest, ADifferentClusterIsTold) {
  auto ps = Join(kPs);
  MembershipOptions options = OptionsOf(kWorker0);
  options.fingerprint[1] = "cluster.worker[0]=h7:1";
  const absl::Status refused = Membership::Join(std::move(options)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(refused),
              HasSubstr("cluster.worker[0]=h7:1 here, cluster.worker[0]=h1:1 there"));
}

// The job starts again with a task elsewhere, before the keys of its earlier life are gone.
TEST_F(MembershipTest, TheClusterIsThatOfTheMembersThereAre) {
  auto ps = Join(kPs);
  ps->Leave();
  MembershipOptions options = OptionsOf(kWorker0, 2);
  options.fingerprint[1] = "cluster.worker[0]=h7:1";
  auto worker = Membership::Join(std::move(options));
  ASSERT_TRUE(worker.ok()) << worker.status();
  const absl::Status refused = Membership::Join(OptionsOf(kPs, 2)).status();
  EXPECT_THAT(TextOf(refused),
              HasSubstr("cluster.worker[0]=h1:1 here, cluster.worker[0]=h7:1 there"));
}

// A task that was stopped: its lease ends, another takes its place, and it can write nothing.
TEST_F(MembershipTest, AnOldIncarnationIsFenced) {
  std::promise<absl::Status> lost;
  MembershipOptions options = OptionsOf(kWorker0);
  options.lease_seconds = 600;  // it does not look by itself
  auto old = ValueOrThrow(Membership::Join(std::move(options)));
  service_.CallerLost("/job:worker/task:0#1");
  auto fresh = Join(kWorker0, 2);
  EXPECT_GT(fresh->revision(), old->revision());
  EXPECT_EQ(old->Put("result", "stale").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ValueOrThrow(fresh->List("result")).entries.size(), 0u);
  EXPECT_TRUE(fresh->Put("result", "right").ok());
  const absl::Status fenced = fresh->CheckFence(kWorker0, old->revision());
  EXPECT_EQ(fenced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(fenced), HasSubstr("came anew at revision"));
  old->Abandon(Unavailable("killed"));
}

TEST_F(MembershipTest, AMemberIsToldThatItsLeaseEnded) {
  std::promise<absl::Status> lost;
  MembershipOptions options = OptionsOf(kWorker0);
  options.lease_seconds = 0.4;
  options.lost = [&](const absl::Status& why) { lost.set_value(why); };
  auto member = ValueOrThrow(Membership::Join(std::move(options)));
  service_.CallerLost("/job:worker/task:0#1");
  const absl::Status why = lost.get_future().get();
  EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TextOf(why), HasSubstr("/job:worker/task:0 (incarnation 1) has lost its place: it "
                                     "gave no sign of life for 0.4 s"));
  EXPECT_EQ(member->AwaitAll(kCeiling).code(), absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, TheStoreIsLost) {
  std::promise<absl::Status> lost;
  MembershipOptions options = OptionsOf(kWorker0);
  options.lost = [&](const absl::Status& why) { lost.set_value(why); };
  auto member = ValueOrThrow(Membership::Join(std::move(options)));
  service_.Stop();
  EXPECT_EQ(lost.get_future().get().code(), absl::StatusCode::kUnavailable);
}

// Everybody, on a thread each.
void OnAll(const std::vector<Membership*>& members, const std::function<void(Membership&)>& body) {
  std::vector<std::thread> threads;
  for (Membership* member : members) threads.emplace_back([=] { body(*member); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MembershipTest, GatherBarrierBroadcast) {
  auto ps = Join(kPs);
  auto worker0 = Join(kWorker0), worker1 = Join(kWorker1);
  OnAll({ps.get(), worker0.get(), worker1.get()}, [](Membership& member) {
    for (int round = 0; round < 12; ++round) {
      const std::string number = std::to_string(round);
      EXPECT_THAT(ValueOrThrow(Gather(member, "sizes", member.task() + number, kCeiling)),
                  ElementsAre(Pair(kPs, kPs + number), Pair(kWorker0, kWorker0 + number),
                              Pair(kWorker1, kWorker1 + number)));
      EXPECT_EQ(ValueOrThrow(Broadcast(member, "plan", kPs, member.task() + number, kCeiling)),
                kPs + number);
      EXPECT_TRUE(Barrier(member, "end", kCeiling).ok());
    }
  });
  // Rounds that are over leave nothing but the last.
  EXPECT_LE(ValueOrThrow(ps->List("gather/sizes")).entries.size(), 6u);
}

TEST_F(MembershipTest, AGatheringEndsWithTheTaskThatDied) {
  auto ps = Join(kPs);
  auto worker0 = Join(kWorker0), worker1 = Join(kWorker1);
  auto waits = std::async(std::launch::async, [&] { return Barrier(*ps, "start", kCeiling); });
  auto gathered =
      std::async(std::launch::async, [&] { return Barrier(*worker0, "start", kCeiling); });
  Kill(worker1);
  for (auto* end : {&waits, &gathered}) {
    const absl::Status status = end->get();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(TextOf(status), HasSubstr("gather \"barrier start\": /job:worker/task:1 is lost"));
  }
}

TEST_F(MembershipTest, TheFirstFailureIsTheCause) {
  auto ps = Join(kPs);
  auto worker0 = Join(kWorker0), worker1 = Join(kWorker1);
  worker1->Fail(DataLoss("no memory"));
  worker0->Fail(Aborted("a peer failed"));
  const auto failure = ValueOrThrow(ps->FirstFailure());
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->task, kWorker1);
  EXPECT_THAT(TextOf(Barrier(*ps, "start", kCeiling)),
              HasSubstr("/job:worker/task:1 failed: no memory"));
}

TEST_F(MembershipTest, WhoIsLateIsNamed) {
  auto ps = Join(kPs);
  auto worker0 = Join(kWorker0), worker1 = Join(kWorker1);
  const absl::Status late = Barrier(*ps, "start", 0.01);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(late), HasSubstr("waited 0.01 s for /job:worker/task:0, /job:worker/task:1"));
}

}  // namespace
}  // namespace tutti::net
