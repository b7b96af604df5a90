#include "tutti/net/tcp/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/rank_thread.h"
#include "tutti/net/tcp/stream_plan.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net::tcp {
namespace {

using ::testing::HasSubstr;

std::vector<std::unique_ptr<Transport>> MakeTcp(int size, int streams) {
  std::vector<std::unique_ptr<TcpTransport>> ranks;
  std::vector<std::string> endpoints;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(ValueOrThrow(
        TcpTransport::Listen({.rank = rank, .size = size, .streams_in_host = streams})));
    endpoints.push_back(ranks.back()->endpoint());
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& rank : ranks) {
    ThrowIfError(rank->Connect(endpoints));
    transports.push_back(std::move(rank));
  }
  return transports;
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, TransportSuite,
    ::testing::Values(TransportCase{"tcp, 2 streams", [](int size) { return MakeTcp(size, 2); }},
                      TransportCase{"tcp, 1 stream", [](int size) { return MakeTcp(size, 1); }}));

TEST(StreamPlanTest, HasFewBytesUnderWayWithinAHost) {
  const TcpOptions options = {.streams = 5, .streams_in_host = 3};
  EXPECT_EQ(PlanStreams(options, /*on_this_host=*/true),
            (StreamPlan{.streams = 3, .send_buffer = 256 << 10}));
  EXPECT_EQ(PlanStreams(options, /*on_this_host=*/false),
            (StreamPlan{.streams = 5, .send_buffer = 0}));
  EXPECT_EQ(PlanStreams({}, /*on_this_host=*/true).streams, 1);
  EXPECT_GT(PlanStreams({}, /*on_this_host=*/false).streams, 1);
}

// What rank 0 has sent so far has arrived at rank 1, received or not: a short message behind it
// has.
void WaitUntilArrived(std::vector<std::unique_ptr<RankThread>>& ranks, size_t shorts_so_far) {
  EXPECT_TRUE(ranks[0]->With([](Transport& t) { return t.SendShort(1, {0, 0}, {}); }).ok());
  ranks[1]->WaitForShorts(shorts_so_far + 1);
}

enum class First { kSend, kReceive };

// Sizes around every limit: nothing, one byte, the eager limit, one frame, several, odd.
const size_t kSizes[] = {0,      1,      63,     4096,    65535,     65536,  65537,
                         524287, 524288, 524289, 1 << 20, 3'000'001, 9 << 20};

class MessageTest : public ::testing::TestWithParam<std::tuple<First, bool, int>> {};

TEST_P(MessageTest, OfEverySizeArrives) {
  const auto [first, take, streams] = GetParam();
  auto ranks = StartRanks(2, {.streams_in_host = streams});
  uint32_t index = 0;
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    const Tag tag = {.operation = 5, .index = ++index};
    const std::vector<std::byte> data = RandomBytes(size, size + 1);
    std::vector<std::byte> received(size);
    Recorder send;
    Recorder receive;
    std::byte* destination = take ? nullptr : received.data();
    if (first == First::kSend) {
      ranks[0]->Send(1, tag, data, &send);
      WaitUntilArrived(ranks, index - 1);
      ranks[1]->Receive(0, tag, destination, size, &receive);
    } else {
      ranks[1]->Receive(0, tag, destination, size, &receive);
      ranks[0]->Send(1, tag, data, &send);
    }
    EXPECT_TRUE(receive.Wait().ok()) << receive.Wait();
    EXPECT_TRUE(send.Wait().ok());
    EXPECT_TRUE((take ? receive.taken() : received) == data);
  }
}

INSTANTIATE_TEST_SUITE_P(Cross, MessageTest,
                         ::testing::Combine(::testing::Values(First::kSend, First::kReceive),
                                            ::testing::Bool(), ::testing::Values(1, 2, 5)));

TEST(TcpTransportTest, BothWaysAtOnceBetweenManyRanks) {
  constexpr int kRanks = 4;
  constexpr int kMessages = 20;
  auto ranks = StartRanks(kRanks);
  struct Transfer {
    std::vector<std::byte> data;
    std::vector<std::byte> received;
    Recorder send;
    Recorder receive;
    bool take = false;
  };
  std::vector<std::unique_ptr<Transfer>> transfers;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (to == from) continue;
      for (uint32_t i = 0; i < kMessages; ++i) {
        auto& transfer = *transfers.emplace_back(std::make_unique<Transfer>());
        transfer.data = RandomBytes(random() % (random() % 2 == 0 ? 1000 : 1'000'000), random());
        transfer.received.resize(transfer.data.size());
        transfer.take = random() % 2 == 0;
        const Tag tag = {.operation = 1, .index = i};
        const auto send = [&] { ranks[from]->Send(to, tag, transfer.data, &transfer.send); };
        const auto receive = [&] {
          ranks[to]->Receive(from, tag, transfer.take ? nullptr : transfer.received.data(),
                             transfer.data.size(), &transfer.receive);
        };
        if (random() % 2 == 0) {
          send();
          receive();
        } else {
          receive();
          send();
        }
      }
    }
  }
  for (const auto& transfer : transfers) {
    ASSERT_TRUE(transfer->send.Wait().ok());
    ASSERT_TRUE(transfer->receive.Wait().ok());
    EXPECT_TRUE((transfer->take ? transfer->receive.taken() : transfer->received) ==
                transfer->data);
  }
}

TEST(TcpTransportTest, MessagesOfOneTagAreMatchedInOrder) {
  auto ranks = StartRanks(2);
  for (const size_t size : {size_t{100}, size_t{300'000}}) {
    std::vector<std::vector<std::byte>> data;
    std::vector<std::vector<std::byte>> received;
    std::vector<Recorder> requests(12);
    for (size_t i = 0; i < 6; ++i) {
      data.push_back(RandomBytes(size, i));
      received.emplace_back(size);
    }
    const Tag tag = {.operation = size, .index = 1};
    for (size_t i = 0; i < 6; ++i) {
      if (i == 3) {
        for (size_t j = 0; j < 6; ++j)
          ranks[1]->Receive(0, tag, received[j].data(), size, &requests[j]);
      }
      ranks[0]->Send(1, tag, data[i], &requests[6 + i]);
    }
    for (Recorder& request : requests) EXPECT_TRUE(request.Wait().ok());
    EXPECT_TRUE(received == data);
  }
}

TEST(TcpTransportTest, ALargeMessageWithoutReceiveHoldsUpNobody) {
  auto ranks = StartRanks(2);
  const std::vector<std::byte> large = RandomBytes(1'000'000);
  std::vector<std::byte> received(large.size());
  Recorder blocked, other_send, other_receive, receive;
  ranks[0]->Send(1, {1, 1}, large, &blocked);
  ranks[0]->Send(1, {1, 2}, large, &other_send);
  ranks[1]->Receive(0, {1, 2}, received.data(), received.size(), &other_receive);
  EXPECT_TRUE(other_receive.Wait().ok());
  EXPECT_TRUE(other_send.Wait().ok());
  EXPECT_FALSE(blocked.done());
  ranks[1]->Receive(0, {1, 1}, received.data(), received.size(), &receive);
  EXPECT_TRUE(blocked.Wait().ok());
  EXPECT_TRUE(receive.Wait().ok());
}

class LengthTest : public ::testing::TestWithParam<std::tuple<First, size_t, size_t>> {};

TEST_P(LengthTest, AnotherLengthIsAnErrorThatNamesBoth) {
  const auto [first, sent, expected] = GetParam();
  auto ranks = StartRanks(2);
  const std::vector<std::byte> data = RandomBytes(sent);
  std::vector<std::byte> received(expected);
  Recorder send, receive;
  if (first == First::kSend) {
    ranks[0]->Send(1, {3, 4}, data, &send);
    WaitUntilArrived(ranks, 0);
  }
  ranks[1]->Receive(0, {3, 4}, received.data(), expected, &receive);
  if (first == First::kReceive) ranks[0]->Send(1, {3, 4}, data, &send);
  const absl::Status status = receive.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(status)),
              HasSubstr("message 3.4 has " + std::to_string(sent) + " bytes, expected " +
                        std::to_string(expected)));
  // A small message has left before anybody could object.
  if (sent > kEagerBytes) {
    EXPECT_EQ(send.Wait().code(), absl::StatusCode::kInvalidArgument);
  }
  // The link goes on.
  const std::vector<std::byte> again = RandomBytes(100'000);
  std::vector<std::byte> again_received(again.size());
  Recorder next_send, next_receive;
  ranks[0]->Send(1, {3, 5}, again, &next_send);
  ranks[1]->Receive(0, {3, 5}, again_received.data(), again.size(), &next_receive);
  EXPECT_TRUE(next_receive.Wait().ok());
  EXPECT_TRUE(next_send.Wait().ok());
  EXPECT_TRUE(again_received == again);
}

INSTANTIATE_TEST_SUITE_P(Cross, LengthTest,
                         ::testing::Combine(::testing::Values(First::kSend, First::kReceive),
                                            ::testing::Values(10, 100'000),
                                            ::testing::Values(11, 100'001)));

TEST(TcpTransportTest, ShortMessagesKeepTheirOrder) {
  auto ranks = StartRanks(3);
  constexpr uint32_t kCount = 5'000;
  for (uint32_t i = 0; i < kCount; ++i) {
    for (const int from : {0, 1}) {
      const std::vector<std::byte> data = RandomBytes(i % 41, i);
      ASSERT_TRUE(ranks[from]
                      ->With([&](Transport& t) {
                        return t.SendShort(2, {7, i}, data);
                      })
                      .ok());
    }
  }
  uint32_t next[2] = {0, 0};
  for (const Transport::ShortMessage& message : ranks[2]->WaitForShorts(2 * kCount)) {
    const uint32_t i = next[message.peer]++;
    ASSERT_EQ(message.tag, (Tag{7, i}));
    const std::vector<std::byte> expected = RandomBytes(i % 41, i);
    ASSERT_EQ(message.bytes, expected.size());
    ASSERT_EQ(std::memcmp(message.data, expected.data(), expected.size()), 0);
  }
  const std::vector<std::byte> long_data(Transport::kShortBytes + 1);
  EXPECT_EQ(ranks[0]
                ->With([&](Transport& t) {
                  return t.SendShort(2, {7, 0}, long_data);
                })
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TcpTransportTest, PutsAndGetsReachRegisteredMemory) {
  auto ranks = StartRanks(2);
  auto memory = ValueOrThrow(ranks[1]->transport().Allocate(2'000'000));
  std::vector<std::byte> own(300'000);
  auto registered = ValueOrThrow(ranks[1]->transport().Register(own));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->bytes().data()) % 4096, 0u);
  for (const size_t size : {0, 1, 70'000, 1'999'000}) {
    const std::vector<std::byte> data = RandomBytes(size, size);
    std::vector<std::byte> back(size);
    const MemoryKey key = {memory->key().region, 1000};
    Recorder put, get;
    ranks[0]->With([&](Transport& t) { t.Put(1, key, data, &put); });
    ASSERT_TRUE(put.Wait().ok()) << put.Wait();
    EXPECT_EQ(std::memcmp(memory->bytes().data() + 1000, data.data(), size), 0);
    ranks[0]->With([&](Transport& t) { t.Get(1, key, back, &get); });
    ASSERT_TRUE(get.Wait().ok()) << get.Wait();
    EXPECT_TRUE(back == data);
  }
  const std::vector<std::byte> data = RandomBytes(300'000);
  Recorder put;
  ranks[0]->With([&](Transport& t) { t.Put(1, registered->key(), data, &put); });
  ASSERT_TRUE(put.Wait().ok());
  EXPECT_TRUE(own == data);

  const MemoryKey inside = ranks[1]->transport().KeyOf(memory->bytes().data() + 5, 10);
  EXPECT_EQ(inside, (MemoryKey{memory->key().region, 5}));
  EXPECT_EQ(ranks[1]->transport().KeyOf(memory->bytes().data() + 5, 2'000'000).region, 0u);
  EXPECT_EQ(ranks[1]->transport().KeyOf(own.data(), 1).region, 0u);
}

TEST(TcpTransportTest, PutsAndGetsOutsideMemoryAreRefused) {
  auto ranks = StartRanks(2);
  auto memory = ValueOrThrow(ranks[1]->transport().Allocate(1000));
  std::vector<std::byte> data(600'000);
  const MemoryKey bad[] = {{memory->key().region, 1},
                           {memory->key().region, UINT64_MAX},
                           {memory->key().region + 1, 0},
                           {0, 0}};
  for (const MemoryKey key : bad) {
    for (const size_t size : {size_t{1000}, data.size()}) {
      Recorder put, get;
      ranks[0]->With([&](Transport& t) {
        t.Put(1, key, std::span(data).first(size), &put);
        t.Get(1, key, std::span(data).first(size), &get);
      });
      EXPECT_EQ(put.Wait().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(get.Wait().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(MessageOf(get.Wait())),
                  HasSubstr("rank 1 (" + ranks[1]->endpoint() + ", tcp) refused a get: "));
    }
  }
  const MemoryKey key = memory->key();
  memory.reset();
  Recorder get;
  ranks[0]->With([&](Transport& t) { t.Get(1, key, std::span(data).first(1), &get); });
  EXPECT_THAT(std::string(MessageOf(get.Wait())), HasSubstr("does not exist"));
  EXPECT_EQ(ranks[0]->broken_count(), 0u);
}

TEST(TcpTransportTest, ARankMapsItsOwnMemory) {
  auto ranks = StartRanks(1);
  auto memory = ValueOrThrow(ranks[0]->transport().Allocate(100));
  EXPECT_EQ(*ranks[0]->transport().Map(0, {memory->key().region, 7}, 93),
            memory->bytes().data() + 7);
  EXPECT_FALSE(ranks[0]->transport().Map(0, {memory->key().region, 7}, 94).ok());
}

TEST(TcpTransportTest, SpeaksIpv6) {
  auto ranks = StartRanks(2, {.host = "::1"});
  EXPECT_THAT(ranks[0]->endpoint(), ::testing::StartsWith("[::1]:"));
  const std::vector<std::byte> data = RandomBytes(300'000);
  std::vector<std::byte> received(data.size());
  Recorder send, receive;
  ranks[0]->Send(1, {1, 1}, data, &send);
  ranks[1]->Receive(0, {1, 1}, received.data(), received.size(), &receive);
  EXPECT_TRUE(receive.Wait().ok());
  EXPECT_TRUE(send.Wait().ok());
  EXPECT_TRUE(received == data);
}

TEST(TcpTransportTest, MistakesOfTheCallerAreErrors) {
  EXPECT_FALSE(TcpTransport::Listen({.rank = 2, .size = 2}).ok());
  EXPECT_FALSE(TcpTransport::Listen({.streams = 0}).ok());
  EXPECT_FALSE(TcpTransport::Listen({.streams_in_host = 65}).ok());
  EXPECT_FALSE(TcpTransport::Listen({.host = "no such host"}).ok());
  auto transport = ValueOrThrow(TcpTransport::Listen({.rank = 0, .size = 2}));
  Recorder early, unknown;
  transport->Send(1, {}, {}, &early);
  EXPECT_EQ(early.Wait().code(), absl::StatusCode::kFailedPrecondition);
  for (const char* endpoint : {"", "host", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", ":1",
                               "::1:4711", "127.0.0.1:4711x"}) {
    const std::string endpoints[] = {"127.0.0.1:1", endpoint};
    EXPECT_EQ(transport->Connect(endpoints).code(), absl::StatusCode::kInvalidArgument) << endpoint;
  }
  const std::string endpoints[] = {"127.0.0.1:1", "127.0.0.1:2"};
  EXPECT_FALSE(transport->Connect(std::span(endpoints).first(1)).ok());
  ASSERT_TRUE(transport->Connect(endpoints).ok());
  transport->Send(2, {}, {}, &unknown);
  EXPECT_EQ(unknown.Wait().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(transport->Map(1, {1, 0}, 1).ok());
}

TEST(TcpTransportTest, WakeEndsAWait) {
  auto transport = ValueOrThrow(TcpTransport::Listen({}));
  transport->Wake();  // also one that comes before
  transport->Wait(INT64_MAX);
  std::thread waiter([&] { transport->Wait(INT64_MAX); });
  transport->Wake();
  waiter.join();
  transport->Wait(1000);  // and time does
}

}  // namespace
}  // namespace tutti::net::tcp
