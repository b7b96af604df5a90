// What every Transport must do with messages.
#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net {

namespace {

std::string Message(const absl::Status& status) { return std::string(MessageOf(status)); }

}  // namespace

constexpr size_t kSizes[] = {0,    1,    3,    40,    41,     64,      65,       1000,
                             4096, 8192, 8193, 65537, 262144, 1 << 20, 3'000'017};

TEST_P(TransportSuite, CarriesEverySize) {
  Make(2);
  uint32_t index = 0;
  for (size_t size : kSizes) {
    SCOPED_TRACE(size);
    const std::vector<std::byte> data = Pattern(size + 1, size);
    std::vector<std::byte> destination(size + 3);
    // From an odd address to another, and in pieces.
    CheckMessage(ConstBytes(data).subspan(1), {7, index++}, destination.data() + 3);
    CheckMessage(ConstBytes(data).first(size), {7, index++}, nullptr);
  }
}

TEST_P(TransportSuite, CarriesEverySizeBetweenRegisteredMemory) {
  Make(2);
  auto from = at(0).Allocate(4 << 20);
  auto to = at(1).Allocate(4 << 20);
  ASSERT_TRUE(from.ok() && to.ok());
  uint32_t index = 0;
  for (size_t size : kSizes) {
    SCOPED_TRACE(size);
    const std::vector<std::byte> data = Pattern(size, size);
    std::byte* source = (*from)->bytes().data() + 65;
    std::ranges::copy(data, source);
    CheckMessage(ConstBytes(source, size), {8, index++}, (*to)->bytes().data() + 1);
    CheckMessage(ConstBytes(source, size), {8, index++}, nullptr);
  }
}

TEST_P(TransportSuite, KeepsMessagesThatComeEarly) {
  Make(2);
  constexpr uint32_t kMessages = 50;
  std::vector<std::vector<std::byte>> data;
  std::deque<Watched> sends(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) {
    data.push_back(Pattern(i % 5 == 0 ? 100'000 + i : 13 * i, i));
  }
  for (uint32_t i = 0; i < kMessages; ++i) at(0).Send(1, {1, i}, data[i], &sends[i]);
  // Whatever may wait at the sender waits; the rest arrives.
  for (int i = 0; i < 1000; ++i) {
    at(0).Progress();
    at(1).Progress();
  }
  std::deque<Watched> receives(kMessages);
  for (uint32_t i = kMessages; i-- > 0;) {
    at(1).Receive(0, {1, i}, nullptr, data[i].size(), &receives[i]);
  }
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(sends, &Watched::done); }));
  for (uint32_t i = 0; i < kMessages; ++i) EXPECT_EQ(receives[i].taken(), data[i]) << i;
}

TEST_P(TransportSuite, MatchesMessagesOfOneTagInOrder) {
  Make(2);
  std::vector<std::byte> data[] = {Pattern(9, 1), Pattern(9, 2), Pattern(9, 3)};
  Watched sends[3];
  Watched receives[3];
  at(1).Receive(0, {5, 5}, nullptr, 9, &receives[0]);
  for (int i = 0; i < 3; ++i) at(0).Send(1, {5, 5}, data[i], &sends[i]);
  ASSERT_TRUE(Drive([&] { return receives[0].done(); }));
  for (int i = 1; i < 3; ++i) at(1).Receive(0, {5, 5}, nullptr, 9, &receives[i]);
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receives[i].taken(), data[i]) << i;
}

TEST_P(TransportSuite, RefusesAnotherLength) {
  Make(2);
  uint32_t index = 0;
  for (size_t size : {100u, 100'000u}) {
    for (bool early : {false, true}) {
      SCOPED_TRACE(testing::Message() << size << (early ? " early" : " late"));
      const std::vector<std::byte> data = Pattern(size, 1);
      std::vector<std::byte> destination(size + 1);
      Watched send;
      Watched receive;
      const Tag tag{9, index++};
      if (!early) at(1).Receive(0, tag, destination.data(), size + 1, &receive);
      at(0).Send(1, tag, data, &send);
      for (int i = 0; i < 1000; ++i) at(1).Progress();
      if (early) at(1).Receive(0, tag, destination.data(), size + 1, &receive);
      ASSERT_TRUE(Drive([&] { return receive.done() && send.done(); }));
      EXPECT_EQ(receive.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(Message(receive.status()).find(std::to_string(size + 1)), std::string::npos);
      EXPECT_NE(Message(receive.status()).find(std::to_string(size)), std::string::npos);
    }
  }
  CheckMessage(Pattern(100, 3), {10, 0}, nullptr);  // the link is as good as before
}

TEST_P(TransportSuite, TakesMoreThanAReceiverReads) {
  Make(2);
  constexpr uint32_t kMessages = 20'000;
  const std::vector<std::byte> data = Pattern(kMessages + 100, 4);
  std::deque<Watched> sends(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) {
    at(0).Send(1, {2, i}, ConstBytes(data).subspan(i, i % 100), &sends[i]);
  }
  std::deque<Watched> receives(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) at(1).Receive(0, {2, i}, nullptr, i % 100, &receives[i]);
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(sends, &Watched::done); }));
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(std::ranges::equal(receives[i].taken(), ConstBytes(data).subspan(i, i % 100))) << i;
  }
}

// So many that some of them wait, and nobody looks before all are sent.
TEST_P(TransportSuite, TakesManyMessagesBeforeAnybodyReads) {
  Make(2);
  constexpr uint32_t kMessages = 230'000;
  constexpr size_t kBytes = 100;
  const std::vector<std::byte> data = Pattern(kMessages + kBytes, 5);
  std::deque<Watched> sends(kMessages), receives(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) {
    at(0).Send(1, {2, i}, ConstBytes(data).subspan(i, kBytes), &sends[i]);
  }
  for (uint32_t i = 0; i < kMessages; ++i) at(1).Receive(0, {2, i}, nullptr, kBytes, &receives[i]);
  ASSERT_TRUE(Drive([&] { return receives.back().done() && sends.back().done(); }));
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(sends, &Watched::done); }));
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(std::ranges::equal(receives[i].taken(), ConstBytes(data).subspan(i, kBytes))) << i;
  }
}

// More small messages than a receiver keeps: the rest waits at the sender, and goes on when the
// receiver has taken some.
TEST_P(TransportSuite, WaitsWhereASenderIsFarAhead) {
  Make(2);
  constexpr uint32_t kMessages = 40'000;
  constexpr size_t kBytes = 2000;
  constexpr size_t kMostKept = size_t{64} << 20;
  static_assert(kMessages * kBytes > kMostKept);
  const std::vector<std::byte> data = Pattern(kMessages + kBytes, 6);
  const auto message = [&](uint32_t i) { return ConstBytes(data).subspan(i, kBytes); };
  const auto tag = [](uint32_t i) { return Tag{3, i / 8}; };  // of those of a tag some will wait
  std::deque<Watched> sends(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) at(0).Send(1, tag(i), message(i), &sends[i]);
  // A connection may take a while to stand; from then on a rest means that the sender waits.
  ASSERT_TRUE(Drive([&] { return sends[0].done(); }));
  for (int still = 0; still < 1000; ++still) {
    if (at(0).Progress() | at(1).Progress()) still = 0;
  }
  const auto sent = std::ranges::count_if(sends, &Watched::done);
  EXPECT_LE(static_cast<size_t>(sent) * kBytes, kMostKept);
  for (uint32_t first = 0; first < kMessages; first += 8) {
    std::deque<Watched> receives(8);
    for (Watched& receive : receives) at(1).Receive(0, tag(first), nullptr, kBytes, &receive);
    ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
    for (uint32_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(receives[i].status().ok()) << receives[i].status();
      ASSERT_TRUE(std::ranges::equal(receives[i].taken(), message(first + i))) << first + i;
    }
  }
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(sends, &Watched::done); }));
  Watched next;
  at(0).Send(1, {4, 0}, message(0), &next);
  EXPECT_TRUE(Drive([&] { return next.done(); })) << "it still waits for the receiver";
  EXPECT_TRUE(next.status().ok()) << next.status();
}

TEST_P(TransportSuite, HasNoLinkToItself) {
  Make(2);
  EXPECT_EQ(at(0).link(0), LinkKind::kSelf);
  const auto memory = at(0).Allocate(100);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<std::byte> data = Pattern(100, 1);
  Watched send, receive, put, get;
  at(0).Send(0, {1, 1}, data, &send);
  at(0).Receive(0, {1, 1}, nullptr, 100, &receive);
  at(0).Put(0, (*memory)->key(), data, &put);
  at(0).Get(0, (*memory)->key(), data, &get);
  for (const Watched* request : {&send, &receive, &put, &get}) {
    ASSERT_TRUE(request->done());
    EXPECT_EQ(request->status(), InvalidArgument("rank 0 has no link to itself"));
  }
  EXPECT_EQ(at(0).SendShort(0, {1, 1}, {}), InvalidArgument("rank 0 has no link to itself"));
  const auto mapped = at(0).Map(0, (*memory)->key(), 100);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(*mapped, (*memory)->bytes().data());
}

TEST_P(TransportSuite, JoinsEveryPair) {
  constexpr int kRanks = 9;
  Make(kRanks);
  std::deque<Watched> sends;
  std::deque<Watched> receives;
  std::deque<std::vector<std::byte>> data;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (to == from) continue;
      const uint64_t pair = static_cast<uint64_t>(from * kRanks + to);
      data.push_back(Pattern(pair % 2 == 0 ? 1000 : 20'000, pair));
      at(from).Send(to, {pair, 0}, data.back(), &sends.emplace_back());
      at(to).Receive(from, {pair, 0}, nullptr, data.back().size(), &receives.emplace_back());
    }
  }
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(receives, &Watched::done); }));
  for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(receives[i].taken(), data[i]) << i;
  ASSERT_TRUE(Drive([&] { return std::ranges::all_of(sends, &Watched::done); }));
}

TEST_P(TransportSuite, CarriesShortMessagesInOrder) {
  Make(2);
  constexpr uint32_t kMessages = 5000;
  const std::vector<std::byte> data = Pattern(kMessages + Transport::kShortBytes, 6);
  for (uint32_t i = 0; i < kMessages; ++i) {
    const size_t size = i % (Transport::kShortBytes + 1);
    ASSERT_TRUE(at(0).SendShort(1, {i, ~i}, ConstBytes(data).subspan(i, size)).ok());
  }
  Transport::ShortMessage message;
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(Drive([&] { return at(1).NextShort(&message); }));
    ASSERT_EQ(message.peer, 0);
    ASSERT_EQ(message.tag, (Tag{i, ~i}));
    ASSERT_EQ(message.bytes, i % (Transport::kShortBytes + 1));
    ASSERT_TRUE(std::equal(message.data, message.data + message.bytes, data.begin() + i)) << i;
  }
  EXPECT_FALSE(at(1).NextShort(&message));
}

TEST_P(TransportSuite, RefusesAShortMessageThatIsLong) {
  Make(2);
  const absl::Status status = at(0).SendShort(1, {1, 1}, Pattern(Transport::kShortBytes + 1, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("1065"), std::string::npos) << status;
}

}  // namespace tutti::net
