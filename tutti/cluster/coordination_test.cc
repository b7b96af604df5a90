// Servers of one cluster, in this process and over real sockets, whose members are kept by one of
// them or by an etcd.
#include "tutti/cluster/coordination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/cluster/server.h"
#include "tutti/net/coordination/gathering.h"
#include "tutti/net/port/listen_at.h"
#include "tutti/testing/cluster/etcd_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing::EtcdUnderTest;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kChief = "/job:chief/task:0";
constexpr const char* kPs = "/job:ps/task:0";

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class CoordinationTest : public ::testing::Test {
 protected:
  CoordinationTest() {
    for (const char* job : {"chief", "ps"}) {
      // Free for a moment before the server has it; nobody else asks for a port by number.
      const net::Socket held = ValueOrThrow(net::ListenAt("127.0.0.1:0"));
      cluster_[job][0] = ToString(ValueOrThrow(net::LocalAddress(held.fd())));
    }
  }
  std::unique_ptr<Server> Start(const std::string& job, const std::string& coordinator) {
    return std::make_unique<Server>(ServerOptions{.job = job,
                                                  .task = 0,
                                                  .cores_per_device = 1,
                                                  .cluster = cluster_,
                                                  .coordinator = coordinator,
                                                  .start_seconds = 60});
  }
  // They meet, wait for each other and exchange what they have.
  void Meet(Server& chief, Server& ps) {
    chief.AwaitTasks(60);
    ps.AwaitTasks(60);
    const auto gather = [](const Server& server) {
      return ValueOrThrow(net::Gather(*server.membership(), "names", server.task() + "!", 60));
    };
    auto other = std::async(std::launch::async, [&] { return gather(ps); });
    EXPECT_THAT(gather(chief), ElementsAre(Pair(kChief, std::string(kChief) + "!"),
                                           Pair(kPs, std::string(kPs) + "!")));
    EXPECT_EQ(other.get().size(), 2u);
  }

  std::map<std::string, std::map<int, std::string>> cluster_;
};

TEST_F(CoordinationTest, TheCoordinatorServesTheOthers) {
  auto ps = Start("ps", kChief);  // before the coordinator is there
  auto chief = Start("chief", kChief);
  Meet(*chief, *ps);
  // A task that starts anew is another member, with a greater revision.
  const auto revision_of_ps = [&] {
    for (const net::Member& member : ValueOrThrow(chief->membership()->Members())) {
      if (member.task == kPs) return member.revision;
    }
    return int64_t{0};
  };
  const int64_t before = revision_of_ps();
  ps.reset();
  EXPECT_THAT(
      ErrorOf([&] { chief->AwaitTasks(0.01); }),
      HasSubstr("1 of 2 tasks are missing after 0.01 s; /job:ps/task:0 left in good order"));
  ps = Start("ps", kChief);
  ps->AwaitTasks(60);
  EXPECT_GT(revision_of_ps(), before);
  // The end of the coordinator is the end of the others.
  chief.reset();
  ps->Join();
}

TEST_F(CoordinationTest, WhoIsMissingIsNamed) {
  auto chief = Start("chief", kChief);
  EXPECT_THAT(ErrorOf([&] { chief->AwaitTasks(0.05); }),
              HasSubstr("1 of 2 tasks are missing after 0.05 s; /job:ps/task:0 has not come"));
}

TEST_F(CoordinationTest, ATaskThatIsNotTheCoordinatorSaysSo) {
  auto chief = Start("chief", "");
  auto ps = Start("ps", kChief);
  EXPECT_THAT(
      ErrorOf([&] { ps->AwaitTasks(60); }),
      HasSubstr("/job:chief/task:0 is not the coordinator of its cluster: it was given none"));
  EXPECT_THAT(ErrorOf([&] { ps->Join(); }), HasSubstr("is not the coordinator"));
  EXPECT_THAT(ErrorOf([&] { chief->AwaitTasks(1); }), HasSubstr("has no coordinator"));
}

TEST_F(CoordinationTest, ACoordinatorThatIsNoneIsToldAtOnce) {
  EXPECT_THAT(ErrorOf([&] { Start("chief", "/job:chief/task:7"); }),
              HasSubstr("coordinator \"/job:chief/task:7\": the cluster has no such task; expected "
                        "one such as /job:chief/task:0, or etcd://host:2379,.../job"));
  EXPECT_THAT(ErrorOf([&] { Start("chief", "etcd://nowhere"); }), HasSubstr("no port"));
}

// The end of the chief in good order ends all.
TEST_F(CoordinationTest, AnEtcdKeepsTheMembers) {
  if (const std::string missing = EtcdUnderTest::Missing(); !missing.empty()) {
    GTEST_SKIP() << missing;
  }
  EtcdUnderTest etcd({});
  auto chief = Start("chief", etcd.url("one"));
  auto ps = Start("ps", etcd.url("one"));
  Meet(*chief, *ps);
  chief.reset();
  ps->Join();
}

}  // namespace
}  // namespace tutti
