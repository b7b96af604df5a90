// Servers of one cluster, in this process and over real sockets, whose members are kept by one of
// them or by an etcd.
#include "tutti/cluster/coordination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/task_status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/net/coordination/gathering.h"
#include "tutti/net/port/listen_at.h"
#include "tutti/testing/cluster/etcd_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing::EtcdUnderTest;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr const char* kChief = "/job:chief/task:0";
constexpr const char* kPs = "/job:ps/task:0";
constexpr const char* kWorker = "/job:worker/task:0";

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
    for (const char* job : {"chief", "ps"}) cluster_[job][0] = FreeAddress();
  }
  static std::string FreeAddress() {
    // Free for a moment before the server has it; nobody else asks for a port by number.
    const net::Socket held = ValueOrThrow(net::ListenAt("127.0.0.1:0"));
    return ToString(ValueOrThrow(net::LocalAddress(held.fd())));
  }
  std::unique_ptr<Server> Start(const std::string& job, const std::string& coordinator,
                                const std::string& bind = "") {
    return std::make_unique<Server>(ServerOptions{.job = job,
                                                  .task = 0,
                                                  .cores_per_device = 1,
                                                  .cluster = cluster_,
                                                  .bind = bind,
                                                  .coordinator = coordinator,
                                                  .leader = leader_,
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
  std::string leader_;
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
  auto chief = Start("chief", "none");
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
                        "one such as /job:chief/task:0, etcd://host:2379,.../job, or none"));
  EXPECT_THAT(ErrorOf([&] { Start("chief", "etcd://nowhere"); }), HasSubstr("no port"));
}

// While the first lives, the second is told who has its place.
TEST_F(CoordinationTest, ASecondProcessOfATaskIsRefusedByATask) {
  auto chief = Start("chief", kChief), ps = Start("ps", kChief);
  chief->AwaitTasks(60);
  const int64_t revision = ps->membership()->revision();
  auto second = Start("ps", kChief, FreeAddress());
  const std::string error = ErrorOf([&] { second->Join(); });
  EXPECT_THAT(error,
              HasSubstr("/job:ps/task:0 is taken by another process, /job:ps/task:0 (127.0.0.1"));
  EXPECT_THAT(error, HasSubstr("end that one, or start this one as another task"));
  EXPECT_THAT(error, Not(HasSubstr("is lost")));
  EXPECT_THAT(ErrorOf([&] { second->AwaitTasks(60); }), HasSubstr("is taken by another process"));
  EXPECT_TRUE(ps->membership()->CheckPlace().ok());
  EXPECT_EQ(chief->membership()->ViewOf(kPs).revision, revision);
  // Its place is free as soon as it has ended.
  ps.reset();
  second.reset();
  ps = Start("ps", kChief);
  EXPECT_GT(ps->membership()->revision(), revision);
}

TEST_F(CoordinationTest, TheChiefIsTheCoordinatorUnlessThereIsNone) {
  auto chief = Start("chief", ""), ps = Start("ps", "");
  Meet(*chief, *ps);
  chief.reset();
  ps->Join();
  ps.reset();
  cluster_.erase("chief");
  EXPECT_EQ(Start("ps", "")->membership(), nullptr);
}

// The same with an etcd.
TEST_F(CoordinationTest, ASecondProcessOfATaskIsRefusedByAnEtcd) {
  if (const std::string missing = EtcdUnderTest::Missing(); !missing.empty()) {
    GTEST_SKIP() << missing;
  }
  EtcdUnderTest etcd({});
  auto ps = Start("ps", etcd.url("one"));
  EXPECT_GT(ps->membership()->revision(), 0);
  auto second = Start("ps", etcd.url("one"), FreeAddress());
  EXPECT_THAT(ErrorOf([&] { second->Join(); }),
              HasSubstr("/job:ps/task:0 is taken by another process, " + cluster_["ps"][0]));
  EXPECT_TRUE(ps->membership()->CheckPlace().ok());
}

// A worker that is taken for lost, but lives, can change nothing any more.
TEST_F(CoordinationTest, WhoHasLostItsPlaceCanWriteNothing) {
  RegisterCpuKernels();
  cluster_["worker"][0] = FreeAddress();
  auto chief = Start("chief", kChief), ps = Start("ps", kChief), worker = Start("worker", kChief);
  chief->AwaitTasks(60);
  Graph graph;
  const DeviceScope on_ps(graph, kPs);
  const Output count = Variable(
      graph, {.dtype = kFloat32, .shape = {}, .build = [](Graph& g) { return Constant(g, 0.0f); }},
      "count");
  const Output add = AssignAdd(count, 1.0f);
  Session observer(graph, {.server = chief.get()});
  observer.Initialize();
  auto writer = std::make_unique<Session>(graph, SessionOptions{.server = worker.get()});
  EXPECT_EQ(writer->Run(add).scalar<float>(), 1.0f);
  const net::Membership::View view = chief->membership()->ViewOf(kWorker);
  EXPECT_EQ(view.revision, worker->membership()->revision());
  chief->membership()->ReportLost(kWorker, view.incarnation);
  std::string refused;
  while (refused.empty()) {
    const std::string error = ErrorOf([&] { writer->Run(add); });
    if (error != "no error") refused = error;
  }
  EXPECT_THAT(refused,
              HasSubstr("/job:worker/task:0 (incarnation " + std::to_string(view.incarnation) +
                        ") has lost its place in the job, and is fenced off"));
  const float before = observer.Run(count).scalar<float>();
  for (int i = 0; i < 3; ++i) EXPECT_NE(ErrorOf([&] { writer->Run(add); }), "no error");
  EXPECT_NE(ErrorOf([&] { Session(graph, {.server = worker.get()}).Run(add); }), "no error");
  EXPECT_EQ(observer.Run(count).scalar<float>(), before);
  EXPECT_THAT(ErrorOf([&] { worker->Join(); }), HasSubstr("has lost its place"));
  // Its successor may.
  writer.reset();
  worker.reset();
  worker = Start("worker", kChief);
  EXPECT_GT(worker->membership()->revision(), view.revision);
  EXPECT_EQ(Session(graph, {.server = worker.get()}).Run(add).scalar<float>(), before + 1);
}

// For the others it is lost like one that was killed.
TEST_F(CoordinationTest, WhoHasLostItsPlaceIsUnavailableForOthers) {
  RegisterCpuKernels();
  auto chief = Start("chief", kChief), ps = Start("ps", kChief);
  chief->AwaitTasks(60);
  Graph graph;
  const DeviceScope on_ps(graph, kPs);
  const Output never = Dequeue(FIFOQueue(graph, {{kFloat32, Shape{}}}))[0];
  const Output value = Constant(graph, 1.0f) + Constant(graph, 1.0f);
  Session session(graph, {.server = chief.get()});
  session.Run(value);
  auto waits = std::async(std::launch::async, [&] {
    try {
      session.Run(never);
    } catch (const Error& error) {
      return std::pair(error.code(), std::string(error.what()));
    }
    return std::pair(Code::kOk, std::string());
  });
  while (ps->StatusOf(kPs).steps.empty()) std::this_thread::yield();
  chief->membership()->ReportLost(kPs, chief->membership()->ViewOf(kPs).incarnation);
  const auto [code, text] = waits.get();
  EXPECT_EQ(code, Code::kUnavailable) << text;
  EXPECT_THAT(text, HasSubstr(kPs));
}

// A failure ends all, wherever the store is.
TEST_F(CoordinationTest, TheFirstFailureEndsAll) {
  auto chief = Start("chief", kPs), ps = Start("ps", kPs);
  chief->AwaitTasks(60);
  chief->membership()->Fail(DataLoss("bad data"));
  EXPECT_THAT(ErrorOf([&] { ps->Join(); }), HasSubstr("/job:chief/task:0 failed: bad data"));
}

TEST_F(CoordinationTest, TheEndOfTheLeaderEndsTheCoordinator) {
  leader_ = kChief;
  auto chief = Start("chief", kPs), ps = Start("ps", kPs);
  chief->AwaitTasks(60);
  EXPECT_FALSE(ps->JoinFor(std::chrono::milliseconds(1)));
  chief.reset();
  ps->Join();
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
