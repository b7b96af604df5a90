#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/net/handshake.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/rank_thread.h"
#include "tutti/net/wire.h"

// For tests of what others do to the TCP transport: a rank, and connections to it on which a test
// writes what it likes.
namespace tutti::net::tcp {

inline std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

inline Socket ListenSomewhere(std::string* endpoint) {
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

  // A rank that does not like the beginning may close before the end.
  void Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void WriteFrame(FrameHeader header, std::string_view payload = {}) {
    header.payload = static_cast<uint32_t>(payload.size());
    header.payload_crc = Crc32c(AsBytes(payload));
    Write(std::string(AsText(EncodeHeader(header))) + std::string(payload));
  }
  // The answer to a handshake as `own`: OK, or the reason of the refusal.
  absl::Status ShakeHands(const Identity& own) {
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
    const absl::Status status = connection->ShakeHands(PeerIdentity(stream));
    EXPECT_TRUE(status.ok()) << status;
    return connection;
  }

  std::string peer_endpoint;
  std::unique_ptr<RankThread> rank;

 private:
  Socket listener_;
};

// A message goes from rank 0 to rank 1.
inline void ExpectThatItGoesOn(std::vector<std::unique_ptr<RankThread>>& ranks) {
  const std::vector<std::byte> data = RandomBytes(200'000);
  std::vector<std::byte> received(data.size());
  Recorder send, receive;
  ranks[0]->Send(1, {99, 1}, data, &send);
  ranks[1]->Receive(0, {99, 1}, received.data(), received.size(), &receive);
  EXPECT_TRUE(receive.Wait().ok()) << receive.Wait();
  EXPECT_TRUE(send.Wait().ok()) << send.Wait();
  EXPECT_TRUE(received == data);
}

}  // namespace tutti::net::tcp
