#include "tutti/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <future>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/event_loop.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

TEST(Address, ReadsWhatPeopleWrite) {
  for (const std::string text : {"node7:4711", "10.0.0.7:1", "[fe80::1%eth0]:65535", "[::]:0"}) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(ToString(*endpoint), text);
  }
  EXPECT_EQ(ParseEndpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseEndpoint("[::1]:80")->port, 80);
}

TEST(Address, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no port"},
      {"node7", "no port"},
      {":80", "no host"},
      {"[]:80", "no host"},
      {"::1:80", "several colons and no brackets"},
      {"[::1", "the bracket is not closed"},
      {"[::1]", "no port"},
      {"[::1]80", "no port"},
      {"node7:", "the port is no number from 0 to 65535"},
      {"node7:65536", "the port is no number from 0 to 65535"},
      {"node7:-1", "the port is no number from 0 to 65535"},
      {"node7:80x", "the port is no number from 0 to 65535"},
      {std::string("a\0b:80", 6), "the host is no name"},
  };
  for (const auto& [text, why] : cases) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(MessageOf(endpoint.status())), HasSubstr(why)) << text;
  }
}

TEST(Address, ShowsTheRouteToAPeer) {
  const absl::StatusOr<std::vector<Address>> loopback = Resolve({"127.0.0.1", 4711});
  ASSERT_TRUE(loopback.ok());
  EXPECT_EQ(ToString(loopback->front()), "127.0.0.1:4711");
  EXPECT_EQ(*AddressTowards(loopback->front()), "127.0.0.1");
  EXPECT_FALSE(loopback->front().wildcard());
  EXPECT_TRUE(Resolve({"0.0.0.0", 1})->front().wildcard());
  EXPECT_TRUE(Resolve({"::", 1})->front().wildcard());
  EXPECT_EQ(Resolve({"::ffff:10.0.0.7", 1})->front().host(), "10.0.0.7");
}

TEST(Socket, ConnectsAndSaysWhyNot) {
  const Address any = Resolve({"127.0.0.1", 0})->front();
  absl::StatusOr<Socket> listener = Listen(any);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Address bound = *LocalAddress(listener->fd());
  EXPECT_NE(bound.port(), 0);
  const absl::StatusOr<Socket> connected = Connect(bound, NowNanos() + 10 * kSecond);
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ(ToString(*PeerAddress(connected->fd())), ToString(bound));
  EXPECT_EQ(std::string(MessageOf(Listen(bound).status())),
            "cannot listen at " + ToString(bound) + ": address already in use");
  EXPECT_EQ(WaitFor(connected->fd(), POLLIN, NowNanos()).code(),
            absl::StatusCode::kDeadlineExceeded);
  listener->Close();
  EXPECT_EQ(std::string(MessageOf(Connect(bound, NowNanos() + 10 * kSecond).status())),
            "connection refused");
}

TEST(Socket, ShakesHandsAndReadsNoFurther) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket a(ends[0]), b(ends[1]);
  Identity one, two;
  one.size = two.size = 2;
  two.rank = 1;
  Handshake accepting(one, false, -1), connecting(two, true, 0);
  const int64_t deadline = NowNanos() + 10 * kSecond;
  // The other end sends its first data in one piece with the end of the handshake.
  std::thread other([&] {
    std::byte piece[1024];
    while (accepting.state() == Handshake::State::kMore) {
      if (!WaitFor(a.fd(), POLLIN, deadline).ok()) return;
      const IoResult result = ReadSome(a.fd(), piece);
      std::string out;
      size_t consumed = 0;
      accepting.Feed(std::span(piece).first(result.bytes), &consumed, &out);
      if (accepting.state() == Handshake::State::kDone) out += "data";
      WriteSome(a.fd(), out);
    }
  });
  EXPECT_TRUE(ShakeHands(b.fd(), &connecting, deadline).ok());
  other.join();
  EXPECT_EQ(accepting.peer().rank, 1);
  std::byte data[8];
  EXPECT_TRUE(WaitFor(b.fd(), POLLIN, deadline).ok());
  EXPECT_EQ(ReadSome(b.fd(), data).bytes, 4u);
}

TEST(Socket, AHandshakeWithNobodyEnds) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket a(ends[0]);
  Socket b(ends[1]);
  Handshake late({}, true, 0), closed({}, true, 0);
  EXPECT_EQ(ShakeHands(a.fd(), &late, NowNanos() + kSecond / 100).code(),
            absl::StatusCode::kDeadlineExceeded);
  b.Close();
  EXPECT_EQ(ShakeHands(a.fd(), &closed, NowNanos() + kSecond).code(),
            absl::StatusCode::kUnavailable);
}

TEST(EventLoop, RunsTasksTimesAndDescriptors) {
  auto loop = *EventLoop::Create("loop-test");
  std::vector<int> order;
  std::promise<void> all;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket a(ends[0]), b(ends[1]);
  WriteSome(b.fd(), "x");
  uint64_t id = 0;
  loop->After(2'000'000, [&] {
    order.push_back(3);
    all.set_value();
  });
  loop->After(1'000'000, [&] { order.push_back(2); });
  id = *loop->Watch(a.fd(), EPOLLIN, [&](uint32_t) {
    order.push_back(1);
    loop->Forget(id);  // level-triggered: it would come again
  });
  ASSERT_TRUE(loop->Start().ok());
  all.get_future().wait();
  loop->Post([&] { order.push_back(4); });
  loop->Stop([&] { order.push_back(5); });
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace tutti::net
