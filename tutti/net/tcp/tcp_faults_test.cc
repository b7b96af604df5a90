// What outsiders, damaged bytes and dying peers do to the TCP transport: the connection at fault
// ends, the error names the peer, everything else goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/net/handshake.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/rank_thread.h"
#include "tutti/net/wire.h"

namespace tutti::net::tcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

Socket ListenSomewhere(std::string* endpoint) {
  Socket socket = ValueOrThrow(net::Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
  *endpoint = ToString(ValueOrThrow(LocalAddress(socket.fd())));
  return socket;
}

// One end of a connection, in the hands of a test. Reads give up after 20 s.
class RawConnection {
 public:
  explicit RawConnection(const std::string& endpoint) {
    const Address address = ValueOrThrow(Resolve(ValueOrThrow(ParseEndpoint(endpoint)))).front();
    socket_ = Socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(socket_.fd(), address.get(), address.length), 0);
  }

  void Write(std::string_view bytes) {
    EXPECT_EQ(send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void WriteFrame(FrameHeader header, std::string_view payload = {}) {
    header.payload = static_cast<uint32_t>(payload.size());
    header.payload_crc = Crc32c(AsBytes(payload));
    Write(std::string(AsText(EncodeHeader(header))) + std::string(payload));
  }
  // The answer to a handshake as `own`: OK, or the reason of the refusal.
  absl::Status Greet(const Identity& own) {
    Handshake handshake(own, /*connecting=*/true, /*expected_peer=*/-1);
    std::string out;
    handshake.Start(&out);
    while (handshake.state() == Handshake::State::kMore) {
      Write(out);
      out.clear();
      std::byte bytes[512];
      const ssize_t count =
          recv(socket_.fd(), bytes, std::min(sizeof(bytes), handshake.Wants()), 0);
      if (count <= 0) return Unavailable("closed without a word");
      size_t consumed = 0;
      handshake.Feed({bytes, static_cast<size_t>(count)}, &consumed, &out);
    }
    return handshake.status();
  }
  // True when the other end has closed, or reset, the connection.
  bool EndsWithin20Seconds() {
    char bytes[512];
    ssize_t count = 1;
    while (count > 0) count = recv(socket_.fd(), bytes, sizeof(bytes), 0);
    return count == 0 || errno == ECONNRESET;
  }
  void Close() { socket_.Close(); }
  int fd() const { return socket_.fd(); }

 private:
  Socket socket_;
};

// Rank 0 of two, where rank 1 is what the test makes of it: it listens without ever answering.
class LoneRank {
 public:
  explicit LoneRank(TcpOptions options = {}) {
    options.rank = 0;
    options.size = 2;
    listener_ = ListenSomewhere(&peer_endpoint);
    rank = std::make_unique<RankThread>(ValueOrThrow(TcpTransport::Listen(options)));
    const std::string endpoints[] = {rank->endpoint(), peer_endpoint};
    ThrowIfError(rank->transport().Connect(endpoints));
    rank->Start();
  }

  static Identity PeerIdentity(uint32_t stream = 0) {
    return {.job = "tutti",
            .rank = 1,
            .size = 2,
            .purpose = Identity::Purpose::kTcpData,
            .stream = stream};
  }
  std::unique_ptr<RawConnection> Peer(uint32_t stream = 0) {
    auto connection = std::make_unique<RawConnection>(rank->endpoint());
    const absl::Status status = connection->Greet(PeerIdentity(stream));
    EXPECT_TRUE(status.ok()) << status;
    return connection;
  }

  std::string peer_endpoint;
  std::unique_ptr<RankThread> rank;

 private:
  Socket listener_;
};

// A message goes from rank 0 to rank 1.
void ExpectThatItGoesOn(std::vector<std::unique_ptr<RankThread>>& ranks) {
  const std::vector<std::byte> data = RandomBytes(200'000);
  std::vector<std::byte> received(data.size());
  Recorder send, receive;
  ranks[0]->Send(1, {99, 1}, data, &send);
  ranks[1]->Receive(0, {99, 1}, received.data(), received.size(), &receive);
  EXPECT_TRUE(receive.Wait().ok()) << receive.Wait();
  EXPECT_TRUE(send.Wait().ok()) << send.Wait();
  EXPECT_TRUE(received == data);
}

// Outsiders
// ------------------------------------------------------------------------------------------------

TEST(TcpFaultsTest, StrangersAreRefusedAndTheJobGoesOn) {
  auto ranks = StartRanks(3, {.token = "secret", .generation = 4});
  Identity fits = LoneRank::PeerIdentity();
  fits.size = 3;
  fits.rank = 2;
  fits.token = "secret";
  fits.generation = 4;
  struct Case {
    std::string expected;
    std::function<void(Identity*)> edit;
  };
  const Case cases[] = {
      {"job is 'other', expected 'tutti'", [](Identity* own) { own->job = "other"; }},
      {"wrong token", [](Identity* own) { own->token = "guess"; }},
      {"generation is 3, expected 4", [](Identity* own) { own->generation = 3; }},
      {"job of 5 ranks, expected 3", [](Identity* own) { own->size = 5; }},
      {"rank 3 is out of range", [](Identity* own) { own->rank = 3; }},
      {"rank 1 is taken", [](Identity* own) { own->rank = 1; }},
      {"connection is for control",
       [](Identity* own) { own->purpose = Identity::Purpose::kControl; }},
      {"stream 65, expected 0 to 64", [](Identity* own) { own->stream = 65; }},
  };
  for (const Case& test : cases) {
    Identity own = fits;
    test.edit(&own);
    RawConnection connection(ranks[1]->endpoint());
    EXPECT_THAT(TextOf(connection.Greet(own)), HasSubstr(test.expected));
    EXPECT_TRUE(connection.EndsWithin20Seconds());
  }
  for (const std::string_view garbage : {std::string_view("GET / HTTP/1.1\r\n\r\n"),
                                         std::string_view("TUTTI\0\r\n\x63\0\0\0", 12)}) {
    RawConnection connection(ranks[1]->endpoint());
    connection.Write(garbage);
    EXPECT_TRUE(connection.EndsWithin20Seconds());
  }
  RawConnection half(ranks[1]->endpoint());
  half.Write("TUT");
  half.Close();
  ExpectThatItGoesOn(ranks);
  for (const auto& rank : ranks) EXPECT_EQ(rank->broken_count(), 0u);
}

TEST(TcpFaultsTest, AStreamThatIsThereIsNotTakenTwice) {
  LoneRank lone;
  const auto peer = lone.Peer();
  RawConnection second(lone.rank->endpoint());
  EXPECT_THAT(TextOf(second.Greet(LoneRank::PeerIdentity())), HasSubstr("has stream 0 already"));
  const std::string text = "hello";
  peer->WriteFrame({.kind = FrameKind::kShort, .total = text.size()}, text);
  EXPECT_EQ(lone.rank->WaitForShorts(1)[0].bytes, text.size());
}

TEST(TcpFaultsTest, AThousandIdleConnectionsKeepNobodyOut) {
  auto ranks = StartRanks(2);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<RawConnection>(ranks[1]->endpoint()));
  }
  // All but the youngest are sent away at once.
  EXPECT_TRUE(idle.front()->EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
  EXPECT_EQ(ranks[1]->broken_count(), 0u);
}

TEST(TcpFaultsTest, ASilentConnectionIsSentAway) {
  auto ranks = StartRanks(2, {.connect_seconds = 0.2});
  RawConnection idle(ranks[1]->endpoint());
  EXPECT_TRUE(idle.EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
}

TEST(TcpFaultsTest, WithoutDescriptorsConnectionsAreRefusedAndOthersGoOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers check pointers through descriptors of their own";
#endif
  auto ranks = StartRanks(2);
  ExpectThatItGoesOn(ranks);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower = {.rlim_cur = 256, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  std::vector<Socket> taken;
  for (;;) {
    Socket fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    taken.push_back(std::move(fd));
  }
  taken.pop_back();  // for this end of the connection; none is left for the other
  RawConnection connection(ranks[1]->endpoint());
  EXPECT_TRUE(connection.EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
  taken.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// Frames that must not be
// ------------------------------------------------------------------------------------------------

struct BadFrames {
  std::string name;
  absl::StatusCode code;
  std::string expected;
  // Writes to a peer of whom rank 0 wants message 1.1 of 1,000,000 bytes, its receive 1.
  std::function<void(RawConnection&)> write;
};

class BadFramesTest : public ::testing::TestWithParam<BadFrames> {};

TEST_P(BadFramesTest, BreakTheLinkAndNameThePeer) {
  LoneRank lone;
  std::vector<std::byte> received(1'000'000);
  Recorder receive;
  lone.rank->Receive(1, {1, 1}, received.data(), received.size(), &receive);
  const auto peer = lone.Peer();
  GetParam().write(*peer);
  const absl::Status status = receive.Wait();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(TextOf(status), AllOf(HasSubstr("rank 1 (" + lone.peer_endpoint + ", tcp): "),
                                    HasSubstr(GetParam().expected)));
  const auto broken = lone.rank->WaitForBroken(1);
  EXPECT_EQ(broken[0].peer, 1);
  EXPECT_EQ(broken[0].status, status);
  Recorder next;
  lone.rank->Receive(1, {1, 2}, received.data(), 1, &next);
  EXPECT_EQ(next.Wait(), status);
}

const std::string& Frameful() {
  static const std::string bytes(kMaxPayload, 'x');
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFramesTest,
    ::testing::Values(
        BadFrames{"NoFrame", absl::StatusCode::kInvalidArgument, "not a frame",
                  [](RawConnection& peer) { peer.Write(std::string(kHeaderBytes, 'x')); }},
        BadFrames{"FlippedHeader", absl::StatusCode::kDataLoss, "header of a frame is damaged",
                  [](RawConnection& peer) {
                    HeaderBytes bytes = EncodeHeader({.kind = FrameKind::kPutDone, .id = 1});
                    bytes[20] ^= std::byte{1};
                    peer.Write(AsText(bytes));
                  }},
        BadFrames{"BadKind", absl::StatusCode::kInvalidArgument, "frame kind 200",
                  [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind{200}}); }},
        BadFrames{"OversizedLength", absl::StatusCode::kInvalidArgument,
                  "payload of 4294967295 bytes, expected at most 524288",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = UINT64_MAX,
                                                    .payload = UINT32_MAX})));
                  }},
        BadFrames{"DamagedPayload", absl::StatusCode::kDataLoss,
                  "payload of a data frame is damaged",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = 1'000'000,
                                                    .payload = kMaxPayload,
                                                    .payload_crc = 77})));
                    peer.Write(Frameful());
                  }},
        BadFrames{"HalfAFrame", absl::StatusCode::kUnavailable,
                  "closed the connection in the middle of a frame",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = 1'000'000,
                                                    .payload = kMaxPayload,
                                                    .payload_crc = 77})));
                    peer.Write(std::string_view(Frameful()).substr(1));
                    peer.Close();
                  }},
        BadFrames{
            "UnknownReceive", absl::StatusCode::kInvalidArgument, "receive 2, which is not open",
            [](RawConnection& peer) {
              peer.WriteFrame({.kind = FrameKind::kData, .id = 2, .total = 1'000'000}, Frameful());
            }},
        BadFrames{"OtherTotal", absl::StatusCode::kInvalidArgument, "of 1000001 for receive 1",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'001},
                                    Frameful());
                  }},
        BadFrames{"TwiceTheSame", absl::StatusCode::kInvalidArgument, "or those already",
                  [](RawConnection& peer) {
                    const FrameHeader header = {
                        .kind = FrameKind::kData, .id = 1, .total = 1'000'000};
                    peer.WriteFrame(header, Frameful());
                    peer.WriteFrame(header, Frameful());
                  }},
        BadFrames{"OddPiece", absl::StatusCode::kInvalidArgument, "sent bytes 0 + 5",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'000},
                                    "short");
                  }},
        BadFrames{"LengthChangedInTheMiddle", absl::StatusCode::kInvalidArgument,
                  "another length in the middle of message 1.1",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'000},
                                    Frameful());
                    peer.WriteFrame({.kind = FrameKind::kDiffers, .id = 1, .total = 5});
                  }},
        BadFrames{
            "UnknownPut", absl::StatusCode::kInvalidArgument, "put 7, which is not open",
            [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind::kPutDone, .id = 7}); }},
        BadFrames{"UnknownGet", absl::StatusCode::kInvalidArgument, "get 7, which is not open",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kRefused, .id = 7, .total = 3}, "why");
                  }},
        BadFrames{
            "TakenOfNothing", absl::StatusCode::kInvalidArgument,
            "has taken 5 bytes of messages, which were not sent",
            [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind::kTaken, .total = 5}); }}),
    [](const auto& info) { return info.param.name; });

TEST(TcpFaultsTest, WhatAPeerCanMakeARankKeepIsBounded) {
  LoneRank lone({.max_kept_bytes = 100'000});
  const auto peer = lone.Peer();
  const std::string text(60'000, 'x');
  peer->WriteFrame({.kind = FrameKind::kEager, .index = 1, .total = text.size()}, text);
  peer->WriteFrame({.kind = FrameKind::kEager, .index = 2, .total = text.size()}, text);
  const absl::Status status = lone.rank->WaitForBroken(1)[0].status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(status), HasSubstr("more than 100000 bytes that nobody receives"));
}

TEST(TcpFaultsTest, MemoryTakenBackUnderAPeerBreaksItsLink) {
  LoneRank lone;
  std::vector<std::byte> own(1'000'000);
  auto memory = lone.rank->With([&](Transport& t) { return ValueOrThrow(t.Register(own)); });
  const auto peer = lone.Peer();
  // The answer waits for a connection to the peer, which does not answer.
  peer->WriteFrame(
      {.kind = FrameKind::kGet, .index = memory->key().region, .id = 1, .total = own.size()});
  peer->WriteFrame({.kind = FrameKind::kShort});
  lone.rank->WaitForShorts(1);
  lone.rank->With([&](Transport&) { memory.reset(); });
  EXPECT_EQ(lone.rank->WaitForBroken(1)[0].status.code(), absl::StatusCode::kFailedPrecondition);
}

// Damage and death on the way
// ------------------------------------------------------------------------------------------------

// Passes on what goes to an endpoint, and does something to the byte at a position of the first
// connection that gets so far.
class Proxy {
 public:
  enum class Harm { kFlip, kCut };

  Proxy(std::string target, Harm harm, size_t position)
      : target_(std::move(target)), harm_(harm), position_(position) {
    listener_ = ListenSomewhere(&endpoint_);
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Pair {
    Socket from;
    std::unique_ptr<RawConnection> to;
    size_t passed = 0;
  };

  void Run() {
    while (!stop_) {
      std::vector<pollfd> fds = {{listener_.fd(), POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        fds.push_back({pair.from.fd(), POLLIN, 0});
        fds.push_back({pair.to->fd(), POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 20);
      for (size_t i = 0; i < pairs_.size(); ++i) {
        if (fds[2 * i + 1].revents != 0) Pass(pairs_[i]);
        if (fds[2 * i + 2].revents != 0) PassBack(pairs_[i]);
      }
      std::erase_if(pairs_, [](const Pair& pair) { return !pair.from.valid(); });
      if (fds[0].revents != 0) {
        pairs_.push_back({.from = Socket(accept(listener_.fd(), nullptr, nullptr)),
                          .to = std::make_unique<RawConnection>(target_)});
      }
    }
  }
  void Pass(Pair& pair) {
    std::vector<char> bytes(64 << 10);
    const ssize_t count = recv(pair.from.fd(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return pair.from.Close();
    const size_t begin = pair.passed;
    pair.passed += static_cast<size_t>(count);
    if (!done_ && begin <= position_ && position_ < pair.passed) {
      done_ = true;
      if (harm_ == Harm::kCut) return pair.from.Close();
      bytes[position_ - begin] ^= 0x10;
    }
    send(pair.to->fd(), bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL);
  }
  void PassBack(Pair& pair) {
    char bytes[4096];
    const ssize_t count = recv(pair.to->fd(), bytes, sizeof(bytes), 0);
    if (count <= 0) return pair.from.Close();
    send(pair.from.fd(), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  }

  const std::string target_;
  const Harm harm_;
  const size_t position_;
  bool done_ = false;
  Socket listener_;
  std::string endpoint_;
  std::vector<Pair> pairs_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class HarmTest : public ::testing::TestWithParam<std::tuple<Proxy::Harm, size_t, bool>> {};

TEST_P(HarmTest, IsSeenAndNoMessageIsTakenForWhole) {
  const auto [harm, position, take] = GetParam();
  std::vector<std::unique_ptr<RankThread>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<RankThread>(
        ValueOrThrow(TcpTransport::Listen({.rank = rank, .size = 2}))));
  }
  Proxy proxy(ranks[1]->endpoint(), harm, position);
  const std::string endpoints[] = {ranks[0]->endpoint(), proxy.endpoint()};
  const std::string direct[] = {ranks[0]->endpoint(), ranks[1]->endpoint()};
  ThrowIfError(ranks[0]->transport().Connect(endpoints));
  ThrowIfError(ranks[1]->transport().Connect(direct));
  for (const auto& rank : ranks) rank->Start();

  const std::vector<std::byte> data = RandomBytes(3'000'000);
  std::vector<std::byte> received(data.size());
  Recorder send, receive;
  ranks[1]->Receive(0, {1, 1}, take ? nullptr : received.data(), data.size(), &receive);
  ranks[0]->Send(1, {1, 1}, data, &send);
  const absl::Status status = receive.Wait();
  EXPECT_EQ(status.code(), harm == Proxy::Harm::kFlip ? absl::StatusCode::kDataLoss
                                                      : absl::StatusCode::kUnavailable)
      << status;
  EXPECT_THAT(TextOf(status), HasSubstr("rank 0 (" + ranks[0]->endpoint() + ", tcp): "));
  EXPECT_EQ(ranks[1]->WaitForBroken(1)[0].peer, 0);
  // What was taken before was right.
  const std::vector<std::byte>& taken = receive.taken();
  EXPECT_TRUE(std::equal(taken.begin(), taken.end(), data.begin()));
  // The other side learns of it by the end of its connections.
  EXPECT_EQ(ranks[0]->WaitForBroken(1)[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(send.Wait().ok() || absl::IsUnavailable(send.Wait()));
}

INSTANTIATE_TEST_SUITE_P(
    Cross, HarmTest,
    ::testing::Combine(::testing::Values(Proxy::Harm::kFlip, Proxy::Harm::kCut),
                       ::testing::Values(400, 100'000, 1'000'000), ::testing::Bool()));

TEST(TcpFaultsTest, APeerThatIsNotThereIsNamed) {
  std::string nobody;
  ListenSomewhere(&nobody);  // and close again
  auto transport = ValueOrThrow(TcpTransport::Listen({.rank = 0, .size = 2}));
  const std::string endpoints[] = {transport->endpoint(), nobody};
  ThrowIfError(transport->Connect(endpoints));
  RankThread rank(std::move(transport));
  rank.Start();
  std::vector<std::byte> data(10);
  Recorder send, receive;
  rank.Send(1, {1, 1}, data, &send);
  const absl::Status status = send.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(TextOf(status), "rank 1 (" + nobody + ", tcp): cannot connect: connection refused");
  rank.Receive(1, {1, 1}, data.data(), data.size(), &receive);
  EXPECT_EQ(receive.Wait(), status);
  EXPECT_EQ(rank.With([&](Transport& t) { return t.SendShort(1, {1, 1}, data); }), status);
}

TEST(TcpFaultsTest, APeerThatDoesNotAnswerIsGivenUp) {
  LoneRank lone({.connect_seconds = 0.2});
  std::vector<std::byte> data(10);
  Recorder receive;
  lone.rank->Receive(1, {1, 1}, data.data(), data.size(), &receive);
  EXPECT_EQ(receive.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(receive.Wait()), HasSubstr("cannot connect: no answer for 0.2 s"));
}

TEST(TcpFaultsTest, AWrongTokenBreaksTheLinkOfWhoeverConnects) {
  auto ranks = StartRanks(2, {.token = "right"});
  auto transport = ValueOrThrow(TcpTransport::Listen({.rank = 0, .size = 2, .token = "wrong"}));
  const std::string endpoints[] = {transport->endpoint(), ranks[1]->endpoint()};
  ThrowIfError(transport->Connect(endpoints));
  RankThread stranger(std::move(transport));
  stranger.Start();
  Recorder send;
  stranger.Send(1, {1, 1}, {}, &send);
  EXPECT_EQ(send.Wait().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(TextOf(send.Wait()), HasSubstr("refused by the peer: wrong token"));
  ExpectThatItGoesOn(ranks);
}

TEST(TcpFaultsTest, FailEndsAllRequestsAndRefusesMore) {
  auto ranks = StartRanks(3);
  const std::vector<std::byte> data(1'000'000);
  std::vector<std::byte> received(data.size());
  Recorder send, receive, get, put, later, other;
  ranks[0]->With([&](Transport& t) {
    t.Send(1, {1, 1}, data, &send);
    t.Receive(1, {1, 2}, received.data(), 10, &receive);
    t.Receive(2, {1, 2}, received.data(), 10, &other);
    t.Get(1, {77, 0}, received, &get);
    t.Put(1, {77, 0}, data, &put);
    t.Fail(1, Aborted("enough"));
    t.Send(1, {1, 3}, data, &later);
  });
  for (Recorder* request : {&send, &receive, &get, &put, &later}) {
    EXPECT_EQ(request->Wait(), Aborted("enough"));
  }
  EXPECT_FALSE(other.done());
  EXPECT_EQ(ranks[0]->broken_count(), 0u);  // it did not break by itself
  ranks[0]->With([&](Transport& t) { t.Fail(2, Aborted("all of it")); });
}

TEST(TcpFaultsTest, WhatWasSentBeforeLeavingArrives) {
  for (int round = 0; round < 5; ++round) {
    auto ranks = StartRanks(2);
    const std::vector<std::byte> large = RandomBytes(20'000'000);
    std::vector<std::byte> received(large.size());
    Recorder send, receive, never;
    ranks[1]->Receive(0, {1, 1}, received.data(), received.size(), &receive);
    ranks[1]->Receive(0, {1, 2}, received.data(), 10, &never);
    ranks[0]->Send(1, {1, 1}, large, &send);
    EXPECT_TRUE(send.Wait().ok());
    ranks[0]->With([&](Transport& t) { EXPECT_TRUE(t.SendShort(1, {1, 3}, {}).ok()); });
    ranks[0]->Stop();
    EXPECT_TRUE(receive.Wait().ok()) << receive.Wait();
    EXPECT_TRUE(received == large);
    ranks[1]->WaitForShorts(1);
    EXPECT_EQ(never.Wait().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(TextOf(never.Wait()), HasSubstr("closed the connection"));
  }
}

TEST(TcpFaultsTest, AShortMessageIsSentEvenIfItsSenderLeavesAtOnce) {
  auto ranks = StartRanks(2);
  ranks[0]->With([&](Transport& t) { EXPECT_TRUE(t.SendShort(1, {1, 3}, {}).ok()); });
  ranks[0]->Stop();
  EXPECT_EQ(ranks[1]->WaitForShorts(1)[0].tag, (Tag{1, 3}));
}

TEST(TcpFaultsTest, AKilledPeerIsNamed) {
  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<std::string> endpoints;
  for (int rank = 0; rank < 2; ++rank) {
    transports.push_back(ValueOrThrow(TcpTransport::Listen({.rank = rank, .size = 2})));
    endpoints.push_back(transports.back()->endpoint());
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Sends without end.
    transports[0].reset();
    if (!transports[1]->Connect(endpoints).ok()) _exit(1);
    static std::vector<std::byte> data(1'000'000);
    Recorder* send = new Recorder;
    transports[1]->Send(0, {1, 1}, data, send);
    for (;;) {
      transports[1]->Progress();
      transports[1]->Wait(1'000'000);
    }
  }
  transports[1].reset();
  ASSERT_TRUE(transports[0]->Connect(endpoints).ok());
  RankThread rank(std::move(transports[0]));
  rank.Start();
  std::vector<std::byte> received(1'000'000);
  Recorder receive, never;
  rank.Receive(1, {1, 1}, received.data(), received.size(), &receive);
  EXPECT_TRUE(receive.Wait().ok());
  rank.Receive(1, {1, 2}, received.data(), received.size(), &never);
  kill(child, SIGKILL);
  EXPECT_EQ(never.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(never.Wait()), HasSubstr("rank 1 (" + endpoints[1] + ", tcp): "));
  EXPECT_EQ(rank.WaitForBroken(1)[0].peer, 1);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tutti::net::tcp
