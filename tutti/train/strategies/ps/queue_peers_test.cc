#include "tutti/train/strategies/ps/queue_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tutti/graph/ops/queue.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/log_under_test.h"
#include "tutti/train/strategies/ps/servers_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QueuePeersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  // Runs body(peers) for each of `workers`, and gives back their errors.
  static std::vector<std::string> OnPeers(int workers,
                                          const std::function<void(QueuePeers&)>& body) {
    ServersUnderTest cluster(1, workers);
    std::vector<std::string> errors(static_cast<size_t>(workers));
    std::vector<std::thread> threads;
    for (int r = 0; r < workers; ++r) {
      threads.emplace_back([&, r] {
        QueuePeers peers(cluster.For(r), QueuePeers::Losses::kEndTheJob);
        try {
          body(peers);
        } catch (const Error& error) {
          errors[size_t(r)] = error.what();
          peers.Abort(error.code(), error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
};

TEST_F(QueuePeersTest, GathersAndSums) {
  const auto errors = OnPeers(3, [](QueuePeers& peers) {
    EXPECT_EQ(peers.workers(), 3);
    for (int round = 0; round < 20; ++round) {
      const std::string own = peers.rank() == 1 ? "" : std::string(size_t(round), 'a') + " 1 2";
      const auto texts = peers.Gather("texts", own);
      EXPECT_THAT(texts, ElementsAre(std::string(size_t(round), 'a') + " 1 2", "",
                                     std::string(size_t(round), 'a') + " 1 2"));
      double values[] = {1.0 + peers.rank(), 10};
      peers.Sum("values", values);
      EXPECT_EQ(values[0], 6);
      EXPECT_EQ(values[1], 30);
    }
  });
  EXPECT_THAT(errors, ElementsAre("", "", ""));
}

TEST_F(QueuePeersTest, TheFailureOfOneEndsWhatOthersWaitFor) {
  const auto errors = OnPeers(3, [](QueuePeers& peers) {
    peers.Gather("start", "");
    if (peers.rank() == 2) throw Error(Code::kDataLoss, "worker 2 has lost its way");
    peers.Gather("texts", "");
  });
  EXPECT_EQ(errors[0], "worker 2 has lost its way");
  EXPECT_EQ(errors[1], "worker 2 has lost its way");
}

TEST_F(QueuePeersTest, NamesWhoDidNotAppear) {
  ServersUnderTest cluster(1, 3);
  ParameterServers servers = cluster.For(0);
  servers.start_timeout = 0.2;
  QueuePeers zero(servers, QueuePeers::Losses::kEndTheJob);
  QueuePeers two(cluster.For(2), QueuePeers::Losses::kEndTheJob);
  auto waits = std::async(std::launch::async, [&] { return two.Gather("agreement", ""); });
  try {
    zero.Gather("agreement", "");
    FAIL() << "it went on without worker 1";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("agreement: worker 1 of 3 did not appear within 0.2 s; was it started?"));
    zero.Abort(error.code(), error.what());
  }
  EXPECT_THROW(waits.get(), Error);
}

TEST_F(QueuePeersTest, NamesWhoLeftTooEarly) {
  const auto errors = OnPeers(3, [](QueuePeers& peers) {
    peers.Gather("start", "");
    if (peers.rank() != 1) peers.Gather("agreement", "");
  });
  EXPECT_EQ(errors[0], "worker 1 (/job:worker/task:1) is lost: it left in good order");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST_F(QueuePeersTest, NamesWhoIsElsewhere) {
  const auto errors = OnPeers(
      2, [](QueuePeers& peers) { peers.Gather(peers.rank() == 0 ? "Train" : "Evaluate", ""); });
  EXPECT_THAT(errors[0], HasSubstr("worker 1 is at \"Evaluate\", worker 0 at \"Train\""));
  EXPECT_THAT(errors[1], HasSubstr("worker 1 is at \"Evaluate\", worker 0 at \"Train\""));
}

TEST_F(QueuePeersTest, RefusesDamagedLetters) {
  ServersUnderTest cluster(1, 2);
  {
    QueuePeers zero(cluster.For(0), QueuePeers::Losses::kEndTheJob);
    const ParameterServers one = cluster.For(1);
    Letters(one).Send(0, {1, one.membership->revision(), -1, false, "agreement", "mine"}, {});
    try {
      zero.Gather("agreement", "");
      FAIL() << "a letter for exchange -1 was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("a letter of worker 1 is for exchange -1"));
    }
  }
  for (const std::string text :
       {"", "x", "2", "2 0", "2 0 1 ", "2 0 2 1 a1 b", "99999999999999999999 ", "1 0 1 a",
        "1 0 1 a9 b", "1 0 1 a1 bc", "1 0 -1 a1 b"}) {
    ParameterServers servers = cluster.For(1);
    Letters letters(servers);
    letters.Send(1, {0, servers.membership->revision(), 0, false, "agreement", text}, {});
    QueuePeers one(servers, QueuePeers::Losses::kEndTheJob);
    try {
      one.Gather("agreement", "");
      ADD_FAILURE() << "it took \"" << text << "\"";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("agreement: the answer of worker 0 to worker 1 is"));
    }
  }
}

// Worker 1 is alive, and comes when worker 0 has warned of it twice.
TEST_F(QueuePeersTest, WarnsAgainAndAgainOfWhoIsLate) {
  ServersUnderTest cluster(1, 2);
  ParameterServers servers = cluster.For(0);
  servers.late_seconds = 0.05;
  QueuePeers zero(servers, QueuePeers::Losses::kEndTheJob);
  QueuePeers one(cluster.For(1), QueuePeers::Losses::kEndTheJob);
  testing::LogUnderTest log;
  auto late = std::async(std::launch::async, [&] {
    one.Gather("start", "");
    try {
      for (int i = 0; i < 2; ++i) {
        log.Await("agreement has waited ");
        log.Await(" s for worker 1 (/job:worker/task:1); it is alive");
      }
    } catch (const Error& error) {
      one.Abort(error.code(), error.what());
    }
    one.Gather("agreement", "");
  });
  zero.Gather("start", "");
  zero.Gather("agreement", "");
  late.get();
}

class PeersThatComeAndGo : public QueuePeersTest {
 protected:
  std::unique_ptr<QueuePeers> Make(int rank) {
    return std::make_unique<QueuePeers>(cluster_.For(rank), QueuePeers::Losses::kAreLeftOut);
  }
  // What worker `rank` gets on a thread of its own.
  static std::future<std::vector<std::string>> Gathered(QueuePeers& peers, std::string own) {
    return std::async(std::launch::async,
                      [&peers, own = std::move(own)] { return peers.Gather("texts", own); });
  }

  ServersUnderTest cluster_{1, 3};
};

TEST_F(PeersThatComeAndGo, AreLeftOutAndLearnWhatTheyMissed) {
  auto zero = Make(0), one = Make(1), two = Make(2);
  std::vector<std::string> told;
  zero->SetLossHandler({{.lost = [&](int, const std::string& why) { told.push_back(why); },
                         .back = [&](int rank) { told.push_back(fmt::format("{} back", rank)); }}});
  {
    auto first = Gathered(*one, "b"), second = Gathered(*two, "c");
    EXPECT_THAT(zero->Gather("texts", "a"), ElementsAre("a", "b", "c"));
    EXPECT_THAT(first.get(), ElementsAre("a", "b", "c"));
    EXPECT_THAT(second.get(), ElementsAre("a", "b", "c"));
  }
  EXPECT_FALSE(two->late());
  cluster_.Lose(2);
  {
    auto first = Gathered(*one, "e");
    EXPECT_THAT(zero->Gather("texts", "d"), ElementsAre("d", "e", ""));
    EXPECT_THAT(first.get(), ElementsAre("d", "e", ""));
    EXPECT_THAT(zero->Present(), ElementsAre(0, 1));
    EXPECT_THAT(one->Present(), ElementsAre(0, 1));
  }
  // What its former self sends is dropped.
  auto former = std::move(two);
  two = Make(2);
  EXPECT_THAT(two->Gather("texts", "c anew"), ElementsAre("a", "b", "c anew"));
  EXPECT_TRUE(two->late());
  EXPECT_THAT(two->Gather("texts", "f"), ElementsAre("d", "e", "f"));
  EXPECT_THAT(two->Present(), ElementsAre(0, 1)) << "as it was then";
  {
    auto first = Gathered(*one, "h"), second = Gathered(*two, "i");
    EXPECT_THAT(zero->Gather("texts", "g"), ElementsAre("g", "h", "i"));
    EXPECT_THAT(first.get(), ElementsAre("g", "h", "i"));
    EXPECT_THAT(second.get(), ElementsAre("g", "h", "i"));
  }
  EXPECT_FALSE(two->late());
  EXPECT_THAT(two->Present(), ElementsAre(0, 1, 2));
  zero->SetLossHandler({});
  EXPECT_THAT(told,
              ElementsAre("worker 2 (/job:worker/task:2) is lost: it was at start 1", "2 back"));
}

TEST_F(PeersThatComeAndGo, TheFirstCannotBeMissed) {
  auto one = Make(1);
  auto waits = Gathered(*one, "b");
  auto zero = Make(0), two = Make(2);
  auto second = Gathered(*two, "c");
  zero->Gather("texts", "a");
  waits.get();
  second.get();
  cluster_.Lose(0);
  try {
    one->Gather("texts", "d");
    FAIL() << "it went on without worker 0";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker 0 (/job:worker/task:0) is lost"));
  }
}

}  // namespace
}  // namespace tutti
