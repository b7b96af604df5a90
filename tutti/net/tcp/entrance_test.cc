// A transport that does not listen: a Port does, and gives it the connections that are for data.
#include "tutti/net/tcp/entrance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/net/port/port.h"
#include "tutti/net/tcp/lone_rank.h"

namespace tutti::net::tcp {
namespace {

using ::testing::HasSubstr;
using Purpose = Identity::Purpose;

TcpOptions OptionsOf(int rank) { return {.rank = rank, .size = 2, .token = "secret"}; }

Identity PeerIdentity(uint32_t stream) {
  Identity identity = LoneRank::PeerIdentity(stream);
  identity.token = "secret";
  return identity;
}

// Rank 0 of two, behind a port.
class RankBehindAPort {
 public:
  RankBehindAPort() {
    PortOptions options;
    options.identity = PeerIdentity(0);
    options.identity.rank = 0;
    options.identity.task = "/job:worker/task:0";
    port_ = ValueOrThrow(Port::Open(std::move(options)));
    rank_ = std::make_unique<RankThread>(
        ValueOrThrow(TcpTransport::Behind(port_->address(), OptionsOf(0))));
    const std::shared_ptr<Entrance> entrance = rank_->transport().entrance();
    port_->Serve(
        Purpose::kTcpData,
        [entrance](const Identity& peer, Socket socket) {
          entrance->Give(peer, std::move(socket));
        },
        [entrance](const Identity& peer, std::string* why) { return entrance->Admit(peer, why); });
    ThrowIfError(port_->Start());
  }

  const std::string& address() const { return port_->address(); }
  std::unique_ptr<RankThread> TakeRank() { return std::move(rank_); }

 private:
  std::unique_ptr<Port> port_;
  std::unique_ptr<RankThread> rank_;
};

void Exchange(RankThread& from, RankThread& to, size_t bytes) {
  const std::vector<std::byte> data = RandomBytes(bytes, bytes);
  std::vector<std::byte> received(data.size());
  const Tag tag = {bytes, 1};
  Recorder send, receive;
  from.Send(to.transport().rank(), tag, data, &send);
  to.Receive(from.transport().rank(), tag, received.data(), received.size(), &receive);
  EXPECT_TRUE(receive.Wait().ok()) << receive.Wait();
  EXPECT_TRUE(send.Wait().ok()) << send.Wait();
  EXPECT_TRUE(received == data);
}

TEST(TcpEntrance, ATransportBehindAPortTakesPartLikeAnother) {
  RankBehindAPort behind;
  std::vector<std::unique_ptr<RankThread>> ranks;
  ranks.push_back(behind.TakeRank());
  ranks.push_back(std::make_unique<RankThread>(ValueOrThrow(TcpTransport::Listen(OptionsOf(1)))));
  EXPECT_EQ(ranks[0]->endpoint(), behind.address());
  EXPECT_EQ(ranks[1]->transport().entrance(), nullptr);
  const std::string endpoints[] = {ranks[0]->endpoint(), ranks[1]->endpoint()};
  for (const auto& rank : ranks) {
    ThrowIfError(rank->transport().Connect(endpoints));
    rank->Start();
  }
  for (const size_t bytes : {size_t{64}, size_t{200'000}, size_t{20'000'000}}) {
    Exchange(*ranks[1], *ranks[0], bytes);
    Exchange(*ranks[0], *ranks[1], bytes);
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->broken_count(), 0u);
}

// What comes before anybody makes progress waits.
TEST(TcpEntrance, TakesAStreamOnceAndClosesWhatDoesNotFit) {
  RankBehindAPort behind;
  RawConnection first(behind.address()), second(behind.address()), beyond(behind.address());
  EXPECT_TRUE(first.ShakeHands(PeerIdentity(0)).ok());
  EXPECT_TRUE(second.ShakeHands(PeerIdentity(0)).ok());
  EXPECT_TRUE(beyond.ShakeHands(PeerIdentity(kMaxTcpStreams + 1)).ok());
  const auto rank = behind.TakeRank();
  const std::string endpoints[] = {rank->endpoint(), "127.0.0.1:1"};
  ThrowIfError(rank->transport().Connect(endpoints));
  rank->Start();
  EXPECT_TRUE(second.EndsWithin20Seconds());
  EXPECT_TRUE(beyond.EndsWithin20Seconds());
  const std::string text = "hello";
  first.WriteFrame({.kind = FrameKind::kShort, .total = text.size()}, text);
  EXPECT_EQ(rank->WaitForShorts(1)[0].bytes, text.size());
  EXPECT_EQ(rank->broken_count(), 0u);
}

TEST(TcpEntrance, RefusesEverybodyWhenTheTransportHasGone) {
  RankBehindAPort behind;
  RawConnection given(behind.address());
  EXPECT_TRUE(given.ShakeHands(PeerIdentity(0)).ok());
  behind.TakeRank().reset();
  EXPECT_TRUE(given.EndsWithin20Seconds());
  RawConnection late(behind.address());
  EXPECT_THAT(TextOf(late.ShakeHands(PeerIdentity(0))),
              HasSubstr("refused by the peer: the rank has closed its links"));
}

}  // namespace
}  // namespace tutti::net::tcp
