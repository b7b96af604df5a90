// Rank 0's port takes connections for more than the control plane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <future>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/net/coordination/star_test_ranks.h"
#include "tutti/net/port/dial.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;
using Purpose = Identity::Purpose;

constexpr int64_t kLimit = 20'000'000'000;

// Connects to the port as `own`: the socket, or why not.
absl::StatusOr<Socket> Knock(const std::string& port, const Identity& own) {
  TUTTI_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(port));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(endpoint));
  TUTTI_ASSIGN_OR_RETURN(Socket socket, Connect(addresses.front(), NowNanos() + kLimit));
  Handshake handshake(own, /*connecting=*/true, /*expected_peer=*/0);
  TUTTI_RETURN_IF_ERROR(ShakeHands(socket.fd(), &handshake, NowNanos() + kLimit));
  return socket;
}

Identity RankOne() {
  return {.job = "test",
          .token = "secret",
          .rank = 1,
          .size = 2,
          .purpose = Purpose::kTcpData,
          .stream = 3};
}

class StarPort : public testing::Test {
 protected:
  StarPort() : stars_(ConnectRanks(TestRanks(2, folder_.File("meet")))) {}
  Star& hub() { return *stars_.at(0); }
  std::string ReasonFor(const Identity& own) { return Text(Knock(hub().port(), own).status()); }

 private:
  TestFolder folder_;
  std::vector<std::unique_ptr<Star>> stars_;
};

TEST_F(StarPort, IsRankZerosOnly) {
  EXPECT_THAT(hub().port(), testing::StartsWith("127.0.0.1:"));
  const TestFolder folder;
  const auto stars = ConnectRanks(TestRanks(2, folder.File("meet")));
  EXPECT_EQ(stars.at(1)->port(), "");
  const auto alone = ConnectRanks(TestRanks(1, folder.File("alone")));
  EXPECT_EQ(alone.at(0)->port(), "");
}

TEST_F(StarPort, HandsConnectionsToWhoServesTheirPurpose) {
  std::promise<Connection> promise;
  hub().Serve(
      Purpose::kTcpData,
      [&](const Identity& peer, Socket socket) {
        promise.set_value({peer, std::move(socket)});
      },
      nullptr);
  const auto made = Knock(hub().port(), RankOne());
  ASSERT_TRUE(made.ok()) << made.status();
  const Connection accepted = promise.get_future().get();
  EXPECT_EQ(accepted.peer.rank, 1);
  EXPECT_EQ(accepted.peer.stream, 3u);
  // Not one byte of what follows was read by the handshake.
  ASSERT_TRUE(WriteAll(made->fd(), "hello", NowNanos() + kLimit).ok());
  ASSERT_TRUE(WaitFor(accepted.socket.fd(), POLLIN, NowNanos() + kLimit).ok());
  std::byte bytes[16];
  EXPECT_EQ(ReadSome(accepted.socket.fd(), bytes).bytes, 5u);
}

TEST_F(StarPort, RefusesWhoIsNotOfTheJobAndWhatNobodyServes) {
  const std::string nobody = "connection is for tcp data, which rank 0 does not take";
  EXPECT_THAT(ReasonFor(RankOne()), HasSubstr(nobody));
  hub().Serve(
      Purpose::kTcpData,
      [](const Identity&, const Socket&) { ADD_FAILURE() << "a stranger was let in"; },
      [](const Identity& peer, std::string* why) {
        *why = fmt::format("no stream {} today", peer.stream);
        return Refusal::kNotAdmitted;
      });
  const std::pair<std::string, std::function<void(Identity*)>> cases[] = {
      {"no stream 3 today", [](Identity*) {}},
      {"wrong token", [](Identity* own) { own->token = "guess"; }},
      {"job is 'other', expected 'test'", [](Identity* own) { own->job = "other"; }},
      {"generation is 1, expected 0", [](Identity* own) { own->generation = 1; }},
      {"job of 2 ranks, expected 3", [](Identity* own) { own->size = 3; }},  // the caller finds it
      {"rank 2 is out of range", [](Identity* own) { own->rank = 2; }},
      {"connection is for shared memory, which rank 0 does not take",
       [](Identity* own) { own->purpose = Purpose::kShm; }},
      {"rank 1 is taken by host 127.0.0.1",
       [](Identity* own) { own->purpose = Purpose::kControl; }},
  };
  for (const auto& [expected, edit] : cases) {
    Identity own = RankOne();
    edit(&own);
    EXPECT_THAT(ReasonFor(own), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace tutti::net
