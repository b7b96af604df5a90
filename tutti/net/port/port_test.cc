#include "tutti/net/port/port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;
using Purpose = Identity::Purpose;

constexpr int64_t kSecond = 1'000'000'000;

Identity Task(const std::string& task, uint64_t incarnation = 1) {
  Identity identity;
  identity.job = "cluster";
  identity.token = "secret";
  identity.task = task;
  identity.incarnation = incarnation;
  return identity;
}

PortOptions OptionsOf(const std::string& task) { return {.identity = Task(task)}; }

absl::StatusOr<Connection> Connect(const Port& port, const Identity& own, Purpose purpose,
                                   int64_t nanos = 20 * kSecond) {
  return ConnectTo(port.address(), own, purpose, "/job:ps/task:0", NowNanos() + nanos);
}

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

// A port that tells of each connection by purpose.
struct Served {
  explicit Served(PortOptions options = OptionsOf("/job:ps/task:0"),
                  Handshake::Admit admit = nullptr)
      : port(ValueOrThrow(Port::Open(std::move(options)))) {
    port->Serve(Purpose::kRpc, [this](const Identity& peer, Socket socket) {
      rpc.set_value({peer, std::move(socket)});
    });
    port->Serve(
        Purpose::kLink,
        [this](const Identity& peer, Socket socket) {
          link.set_value({peer, std::move(socket)});
        },
        std::move(admit));
  }
  std::promise<Connection> rpc, link;
  std::unique_ptr<Port> port;
};

TEST(Port, HandsConnectionsToWhoServesTheirPurpose) {
  Served served;
  ASSERT_TRUE(served.port->Start().ok());
  auto rpc = Connect(*served.port, Task("/job:worker/task:1", 7), Purpose::kRpc);
  ASSERT_TRUE(rpc.ok()) << rpc.status();
  EXPECT_EQ(rpc->peer.task, "/job:ps/task:0");
  Connection accepted = served.rpc.get_future().get();
  EXPECT_EQ(accepted.peer.task, "/job:worker/task:1");
  EXPECT_EQ(accepted.peer.incarnation, 7u);
  // Not one byte of what follows was read by the handshake.
  ASSERT_TRUE(WriteAll(rpc->socket.fd(), "hello", NowNanos() + kSecond).ok());
  std::byte bytes[16];
  ASSERT_TRUE(WaitFor(accepted.socket.fd(), POLLIN, NowNanos() + 20 * kSecond).ok());
  EXPECT_EQ(ReadSome(accepted.socket.fd(), bytes).bytes, 5u);
  ASSERT_TRUE(Connect(*served.port, Task("client", 9), Purpose::kLink).ok());
  EXPECT_EQ(served.link.get_future().get().peer.task, "client");
}

TEST(Port, ConnectionsWaitForStart) {
  Served served;
  auto connecting = std::async(
      std::launch::async, [&] { return Connect(*served.port, Task("client"), Purpose::kRpc); });
  ASSERT_TRUE(served.port->Start().ok());
  EXPECT_TRUE(connecting.get().ok());
}

TEST(Port, SaysWhyItRefuses) {
  Served served(OptionsOf("/job:ps/task:0"), [](const Identity&, std::string* why) {
    *why = "a later start is known";
    return Refusal::kIncarnation;
  });
  ASSERT_TRUE(served.port->Start().ok());
  const Port& port = *served.port;
  Identity stranger = Task("/job:worker/task:0");
  stranger.token = "guess";
  const absl::Status token = Connect(port, stranger, Purpose::kRpc).status();
  EXPECT_EQ(token.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(TextOf(token), HasSubstr("/job:ps/task:0 (127.0.0.1:"));
  EXPECT_THAT(TextOf(token), HasSubstr("refused by the peer: wrong token"));
  EXPECT_THAT(TextOf(Connect(port, Task("/job:worker/task:0"), Purpose::kLink).status()),
              HasSubstr("a later start is known"));
  EXPECT_THAT(TextOf(Connect(port, Task("/job:ps/task:0", 2), Purpose::kRpc).status()),
              HasSubstr("task '/job:ps/task:0' is taken"));
  EXPECT_THAT(TextOf(ConnectTo(port.address(), Task("client"), Purpose::kRpc, "/job:ps/task:3",
                               NowNanos() + kSecond)
                         .status()),
              HasSubstr("task is '/job:ps/task:0', expected '/job:ps/task:3'"));
}

TEST(Port, RefusesPurposesThatNobodyServes) {
  auto port = ValueOrThrow(Port::Open(OptionsOf("/job:ps/task:0")));
  ASSERT_TRUE(port->Start().ok());
  EXPECT_THAT(TextOf(Connect(*port, Task("client"), Purpose::kRpc).status()),
              HasSubstr("/job:ps/task:0 takes no connections for gRPC"));
}

TEST(Port, AdvertisedAndBoundMayDiffer) {
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.bind = "0.0.0.0:0";
  options.advertised = "localhost:1";
  auto port = ValueOrThrow(Port::Open(options));
  EXPECT_EQ(port->address(), "localhost:1");
  EXPECT_THAT(port->bound(), HasSubstr("0.0.0.0:"));
}

TEST(Port, RefusesToListenToTheWorldWithoutAToken) {
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.bind = "0.0.0.0:0";
  options.identity.token = "";
  const absl::Status status = Port::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(status), HasSubstr("without a token"));
  options.insecure = true;
  EXPECT_TRUE(Port::Open(options).ok());
  options.insecure = false;
  options.bind = "127.0.0.1:0";
  EXPECT_TRUE(Port::Open(options).ok());
}

TEST(Port, TakesOverAListeningSocket) {
  Socket listening = ValueOrThrow(Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
  const std::string where = ToString(ValueOrThrow(LocalAddress(listening.fd())));
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.listening_fd = listening.Release();
  Served served(options);
  EXPECT_EQ(served.port->address(), where);
  ASSERT_TRUE(served.port->Start().ok());
  EXPECT_TRUE(Connect(*served.port, Task("client"), Purpose::kRpc).ok());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Socket one(ends[0]), other(ends[1]);
  options.listening_fd = one.fd();
  EXPECT_THAT(TextOf(Port::Open(options).status()), HasSubstr("is none"));
}

TEST(Port, SaysThatItsPortIsInUse) {
  auto first = ValueOrThrow(Port::Open(OptionsOf("/job:ps/task:0")));
  PortOptions options = OptionsOf("/job:ps/task:1");
  options.bind = first->bound();
  const absl::Status status = Port::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr("address already in use"));
}

// Hundreds of connections that say nothing or nonsense do not keep an honest one out.
TEST(Port, StrangersDoNotDisturb) {
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.max_pending = 16;
  Served served(options);
  ASSERT_TRUE(served.port->Start().ok());
  const Address address =
      ValueOrThrow(Resolve(ValueOrThrow(ParseEndpoint(served.port->address())))).front();
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(ValueOrThrow(net::Connect(address, NowNanos() + 20 * kSecond)));
    if (i % 2 == 0) WriteSome(strangers.back().fd(), "GET / HTTP/1.1\r\n\r\n");
  }
  EXPECT_TRUE(Connect(*served.port, Task("client"), Purpose::kRpc).ok());
}

TEST(Port, GivesUpOnTheSilent) {
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.handshake_seconds = 0.05;
  Served served(options);
  ASSERT_TRUE(served.port->Start().ok());
  const Address address =
      ValueOrThrow(Resolve(ValueOrThrow(ParseEndpoint(served.port->address())))).front();
  const Socket silent = ValueOrThrow(net::Connect(address, NowNanos() + 20 * kSecond));
  ASSERT_TRUE(WaitFor(silent.fd(), POLLIN, NowNanos() + 20 * kSecond).ok());
  std::byte byte[1];
  EXPECT_EQ(ReadSome(silent.fd(), byte).kind, IoResult::Kind::kClosed);
}

// ConnectTo
// ----------------------------------------------------------------------------------------

TEST(ConnectTo, TriesUntilTheTaskListens) {
  Socket held = ValueOrThrow(Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
  PortOptions options = OptionsOf("/job:ps/task:0");
  options.bind = ToString(ValueOrThrow(LocalAddress(held.fd())));
  held.Close();  // from here on connections are refused
  auto connecting = std::async(std::launch::async, [&] {
    return ConnectTo(options.bind, Task("client"), Purpose::kRpc, "/job:ps/task:0",
                     NowNanos() + 20 * kSecond);
  });
  Served served(options);
  ASSERT_TRUE(served.port->Start().ok());
  const auto connected = connecting.get();
  EXPECT_TRUE(connected.ok()) << connected.status();
}

TEST(ConnectTo, SaysWhatWasTriedAndWhyItFailed) {
  Socket held = ValueOrThrow(Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
  const std::string address = ToString(ValueOrThrow(LocalAddress(held.fd())));
  held.Close();
  const absl::Status refused =
      ConnectTo(address, Task("client"), Purpose::kRpc, "/job:ps/task:0", NowNanos() + kSecond / 20)
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(refused), HasSubstr("/job:ps/task:0 (" + address + "): not reached in 0."));
  EXPECT_THAT(TextOf(refused),
              HasSubstr("attempts; the last failure: " + address + ": connection refused"));
  const absl::Status nameless = ConnectTo("no-such-host.invalid:1", Task("client"), Purpose::kRpc,
                                          "", NowNanos() + kSecond / 20)
                                    .status();
  EXPECT_EQ(nameless.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(nameless), HasSubstr("the task at no-such-host.invalid:1"));
  EXPECT_THAT(TextOf(nameless), HasSubstr("no-such-host.invalid"));
  EXPECT_EQ(ConnectTo("nonsense", Task("client"), Purpose::kRpc, "", NowNanos() + kSecond)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ConnectTo, ASilentListenerIsNotWaitedForBeyondTheDeadline) {
  const Socket silent = ValueOrThrow(Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
  const std::string address = ToString(ValueOrThrow(LocalAddress(silent.fd())));
  EXPECT_THAT(
      TextOf(ConnectTo(address, Task("client"), Purpose::kRpc, "", NowNanos() + kSecond / 20)
                 .status()),
      HasSubstr("no answer in the handshake"));
}

}  // namespace
}  // namespace tutti::net
