#include "tutti/train/strategies/ps/queue_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/graph/ops/queue.h"
#include "tutti/kernels/register.h"
#include "tutti/train/strategies/ps/servers_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QueuePeersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  // Runs body(peers) for each of `workers`, and gives back their errors.
  static std::vector<std::string> OnPeers(int workers, const std::function<void(QueuePeers&)>& body,
                                          double start_timeout = 30) {
    ServersUnderTest cluster(1, workers);
    std::vector<std::string> errors(static_cast<size_t>(workers));
    std::vector<std::thread> threads;
    for (int r = 0; r < workers; ++r) {
      threads.emplace_back([&, r] {
        ParameterServers servers = cluster.For(r);
        servers.start_timeout = start_timeout;
        QueuePeers peers(servers);
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
  const auto errors = OnPeers(
      3,
      [](QueuePeers& peers) {
        if (peers.rank() != 1) peers.Gather("agreement", "");
      },
      0.2);
  EXPECT_THAT(errors[0],
              HasSubstr("agreement: worker 1 of 3 did not appear within 0.2 s; was it started?"));
}

TEST_F(QueuePeersTest, NamesWhoIsElsewhere) {
  const auto errors = OnPeers(
      2, [](QueuePeers& peers) { peers.Gather(peers.rank() == 0 ? "Train" : "Evaluate", ""); });
  EXPECT_THAT(errors[0], HasSubstr("worker 1 is at \"Evaluate\", worker 0 at \"Train\""));
  EXPECT_THAT(errors[1], HasSubstr("worker 1 is at \"Evaluate\", worker 0 at \"Train\""));
}

}  // namespace
}  // namespace tutti
