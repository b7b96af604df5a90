// What damaged bytes and dying peers do to the TCP transport: the connection at fault ends, the
// error names the peer, everything else goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/net/tcp/lone_rank.h"

namespace tutti::net::tcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

// Two processes tell each other where they listen: each writes to the one pipe and reads the other.
std::vector<std::string> ExchangeEndpoints(int rank, const std::string& own, int write_to,
                                           int read_from) {
  EXPECT_EQ(::write(write_to, own.data(), own.size()), ssize_t(own.size()));
  char other[128];
  const ssize_t size = ::read(read_from, other, sizeof other);
  EXPECT_GT(size, 0);
  std::vector<std::string> endpoints = {own,
                                        std::string(other, size_t(std::max<ssize_t>(size, 0)))};
  if (rank == 1) std::swap(endpoints[0], endpoints[1]);
  return endpoints;
}

TEST(TcpFaultsTest, AKilledPeerIsNamed) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Sends without end.
    auto transport = ValueOrThrow(TcpTransport::Listen({.rank = 1, .size = 2}));
    const auto endpoints = ExchangeEndpoints(1, transport->endpoint(), to_parent[1], to_child[0]);
    if (!transport->Connect(endpoints).ok()) _exit(1);
    static std::vector<std::byte> data(1'000'000);
    Recorder* send = new Recorder;
    transport->Send(0, {1, 1}, data, send);
    for (;;) {
      transport->Progress();
      transport->Wait(1'000'000);
    }
  }
  auto transport = ValueOrThrow(TcpTransport::Listen({.rank = 0, .size = 2}));
  const auto endpoints = ExchangeEndpoints(0, transport->endpoint(), to_child[1], to_parent[0]);
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(end);
  ASSERT_TRUE(transport->Connect(endpoints).ok());
  RankThread rank(std::move(transport));
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
