#include "tutti/net/transport_suite.h"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportSuite);

namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::string Message(const absl::Status& status) { return std::string(MessageOf(status)); }

}  // namespace

void PrintTo(const TransportCase& test_case, std::ostream* stream) { *stream << test_case.name; }

void Watched::Done(const absl::Status& status) {
  EXPECT_FALSE(done_) << "Done twice";
  done_ = true;
  status_ = status;
}

void Watched::Take(size_t offset, ConstBytes piece) {
  EXPECT_FALSE(done_) << "Take after Done";
  EXPECT_FALSE(last_taken_) << "a piece after one that does not end at a multiple of 64";
  EXPECT_EQ(offset, taken_.size()) << "pieces out of order";
  EXPECT_FALSE(piece.empty());
  last_taken_ = piece.size() % 64 != 0;
  taken_.insert(taken_.end(), piece.begin(), piece.end());
}

std::vector<std::byte> Pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& byte : data) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

void TransportSuite::Make(int ranks) {
  ranks_ = GetParam().make(ranks);
  ASSERT_EQ(ranks_.size(), static_cast<size_t>(ranks));
}

bool TransportSuite::Drive(const std::function<bool()>& until) {
  const int64_t end = NowNanos() + 30 * kSecond;
  while (!until()) {
    bool moved = false;
    for (auto& rank : ranks_) {
      if (rank) moved |= rank->Progress();
    }
    if (!moved && NowNanos() > end) {
      ADD_FAILURE() << "nothing moves any more";
      return false;
    }
  }
  return true;
}

void TransportSuite::CheckMessage(ConstBytes data, Tag tag, std::byte* destination) {
  Watched send;
  Watched receive;
  at(1).Receive(0, tag, destination, data.size(), &receive);
  at(0).Send(1, tag, data, &send);
  ASSERT_TRUE(Drive([&] { return send.done() && receive.done(); }));
  EXPECT_TRUE(send.status().ok()) << send.status();
  EXPECT_TRUE(receive.status().ok()) << receive.status();
  const ConstBytes got =
      destination ? ConstBytes(destination, data.size()) : ConstBytes(receive.taken());
  EXPECT_TRUE(std::ranges::equal(got, data)) << data.size() << " bytes arrived changed";
}

// Messages --------------------------------------------------------------------------------------

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
  for (int still = 0; still < 1000; ++still) {
    if (at(0).Progress() | at(1).Progress()) still = 0;
  }
  const auto sent = std::ranges::count_if(sends, &Watched::done);
  EXPECT_GT(sent, 0);
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

TEST_P(TransportSuite, SendsToItself) {
  Make(2);
  for (size_t size : {0u, 30u, 8'000u, 500'000u}) {
    const std::vector<std::byte> data = Pattern(size, size);
    Watched send;
    Watched receive;
    at(0).Send(0, {1, 1}, data, &send);
    at(0).Receive(0, {1, 1}, nullptr, size, &receive);
    ASSERT_TRUE(Drive([&] { return send.done() && receive.done(); }));
    EXPECT_EQ(receive.taken(), data);
  }
}

TEST_P(TransportSuite, JoinsEveryPair) {
  constexpr int kRanks = 9;
  Make(kRanks);
  std::deque<Watched> sends;
  std::deque<Watched> receives;
  std::deque<std::vector<std::byte>> data;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
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

// Short messages --------------------------------------------------------------------------------

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

// Memory ----------------------------------------------------------------------------------------

TEST_P(TransportSuite, PutsAndGets) {
  Make(2);
  for (size_t size : {1u, 5000u, 3'000'001u}) {
    SCOPED_TRACE(size);
    auto memory = at(1).Allocate(size + 8);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->bytes().data()) % 4096, 0u);
    EXPECT_TRUE(
        std::ranges::all_of((*memory)->bytes(), [](std::byte b) { return b == std::byte{}; }));
    const std::vector<std::byte> data = Pattern(size, size);
    MemoryKey key = (*memory)->key();
    key.offset += 5;
    Watched put;
    at(0).Put(1, key, data, &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    EXPECT_TRUE(put.status().ok()) << put.status();
    EXPECT_TRUE(std::ranges::equal((*memory)->bytes().subspan(5, size), data));
    std::vector<std::byte> back(size);
    Watched get;
    at(0).Get(1, key, back, &get);
    ASSERT_TRUE(Drive([&] { return get.done(); }));
    EXPECT_TRUE(get.status().ok()) << get.status();
    EXPECT_EQ(back, data);
  }
}

TEST_P(TransportSuite, RefusesToReachBeyondMemory) {
  Make(2);
  auto memory = at(1).Allocate(1000);
  ASSERT_TRUE(memory.ok());
  const MemoryKey key = (*memory)->key();
  std::vector<std::byte> data(1000);
  const MemoryKey bad[] = {{key.region, key.offset + 1},
                           {key.region, UINT64_MAX - 3},
                           {key.region + 1000, 0},
                           {0, 0},
                           {UINT32_MAX, reinterpret_cast<uintptr_t>(data.data())}};
  for (const MemoryKey& wrong : bad) {
    SCOPED_TRACE(testing::Message() << wrong.region << "+" << wrong.offset);
    Watched put;
    Watched get;
    at(0).Put(1, wrong, data, &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    EXPECT_FALSE(put.status().ok());
    at(0).Get(1, wrong, data, &get);
    ASSERT_TRUE(Drive([&] { return get.done(); }));
    EXPECT_FALSE(get.status().ok());
    if (shares_memory()) {
      EXPECT_FALSE(at(0).Map(1, wrong, 1000).ok());
    }
  }
  CheckMessage(Pattern(10, 1), {1, 1}, nullptr);
}

TEST_P(TransportSuite, MapsPeersMemory) {
  Make(2);
  if (!shares_memory()) GTEST_SKIP() << "the ranks share no memory";
  auto memory = at(1).Allocate(5 << 20);
  ASSERT_TRUE(memory.ok());
  auto mapped = at(0).Map(1, (*memory)->key(), 5 << 20);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  (*mapped)[(5 << 20) - 1] = std::byte{42};
  EXPECT_EQ((*memory)->bytes().back(), std::byte{42});
  auto own = at(1).Map(1, (*memory)->key(), 10);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(*own, (*memory)->bytes().data());
}

TEST_P(TransportSuite, KnowsTheKeyOfItsMemory) {
  Make(2);
  auto one = at(0).Allocate(10'000);
  auto two = at(0).Allocate(10'000);
  ASSERT_TRUE(one.ok() && two.ok());
  std::byte* data = (*two)->bytes().data();
  EXPECT_EQ(at(0).KeyOf(data, 10'000), (*two)->key());
  MemoryKey inside = (*two)->key();
  inside.offset += 77;
  EXPECT_EQ(at(0).KeyOf(data + 77, 9'923), inside);
  EXPECT_EQ(at(0).KeyOf(data + 77, 9'924).region, 0u);
  EXPECT_EQ(at(1).KeyOf(data, 10).region, 0u) << "another rank's memory";
  int local = 0;
  EXPECT_EQ(at(0).KeyOf(&local, sizeof(local)).region, 0u);
  two->reset();
  EXPECT_EQ(at(0).KeyOf(data, 10).region, 0u) << "memory given back";
}

TEST_P(TransportSuite, ForgetsMemoryGivenBack) {
  Make(2);
  for (int i = 0; i < 70; ++i) {
    auto memory = at(1).Allocate(100'000);
    ASSERT_TRUE(memory.ok());
    std::byte byte{7};
    Watched put;
    at(0).Put(1, (*memory)->key(), ConstBytes(&byte, 1), &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    ASSERT_TRUE(put.status().ok()) << put.status();
    EXPECT_EQ((*memory)->bytes()[0], byte);
    const MemoryKey key = (*memory)->key();
    memory->reset();
    // The news needs some time to reach the peer.
    ASSERT_TRUE(Drive([&] {
      Watched late;
      at(0).Put(1, key, ConstBytes(&byte, 1), &late);
      return Drive([&] { return late.done(); }) && !late.status().ok();
    }));
  }
}

TEST_P(TransportSuite, MemoryOutlivesTheTransport) {
  Make(2);
  auto memory = at(0).Allocate(1000);
  ASSERT_TRUE(memory.ok());
  ranks_.clear();
  (*memory)->bytes()[999] = std::byte{1};
  memory->reset();
}

// Links that end --------------------------------------------------------------------------------

TEST_P(TransportSuite, FailsWhatIsOpen) {
  Make(3);
  const std::vector<std::byte> data = Pattern(1'000'000, 1);
  Watched send;
  Watched receive;
  Watched other;
  at(0).Send(1, {1, 0}, data, &send);
  at(0).Receive(1, {1, 1}, nullptr, 10, &receive);
  at(0).Receive(2, {1, 1}, nullptr, 10, &other);
  for (int i = 0; i < 100; ++i) at(0).Progress();
  at(0).Fail(1, Aborted("on request"));
  ASSERT_TRUE(send.done() && receive.done());
  EXPECT_EQ(send.status(), Aborted("on request"));
  EXPECT_EQ(receive.status(), Aborted("on request"));
  Watched late;
  at(0).Send(1, {1, 2}, data, &late);
  EXPECT_EQ(late.status(), Aborted("on request"));
  EXPECT_EQ(at(0).SendShort(1, {1, 2}, {}), Aborted("on request"));
  Transport::BrokenLink broken;
  EXPECT_FALSE(at(0).NextBroken(&broken)) << "it did not break by itself";
  // The other link does not notice.
  Watched answer;
  at(2).Send(0, {1, 1}, ConstBytes(data).first(10), &answer);
  ASSERT_TRUE(Drive([&] { return other.done(); }));
  EXPECT_TRUE(other.status().ok());
}

TEST_P(TransportSuite, TellsThatAPeerIsGone) {
  Make(3);
  Watched receive;
  Watched sent;
  const std::vector<std::byte> data = Pattern(100, 1);
  at(0).Receive(1, {1, 1}, nullptr, 10, &receive);
  at(1).Send(0, {2, 2}, data, &sent);
  ASSERT_TRUE(Drive([&] { return sent.done(); }));
  for (int i = 0; i < 1000; ++i) at(0).Progress();
  ranks_[1].reset();
  ASSERT_TRUE(Drive([&] { return receive.done(); }));
  EXPECT_EQ(receive.status().code(), absl::StatusCode::kUnavailable) << receive.status();
  EXPECT_NE(Message(receive.status()).find("rank 1"), std::string::npos) << receive.status();
  Transport::BrokenLink broken;
  ASSERT_TRUE(Drive([&] { return at(0).NextBroken(&broken); }));
  EXPECT_EQ(broken.peer, 1);
  EXPECT_EQ(broken.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(at(0).NextBroken(&broken));
  Watched late;
  at(0).Send(1, {1, 2}, data, &late);
  ASSERT_TRUE(Drive([&] { return late.done(); }));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportSuite, KeepsWhatAPeerSentBeforeItLeft) {
  Make(2);
  const std::vector<std::byte> data = Pattern(3000, 1);
  Watched sent;
  at(1).Send(0, {1, 1}, data, &sent);
  ASSERT_TRUE(at(1).SendShort(0, {2, 2}, ConstBytes(data).first(9)).ok());
  Transport::ShortMessage message;
  ASSERT_TRUE(Drive([&] { return at(0).NextShort(&message) && sent.done(); }));
  EXPECT_EQ(message.bytes, 9u);
  ranks_[1].reset();
  const int64_t end = NowNanos() + kSecond / 20;
  while (NowNanos() < end) at(0).Progress();  // notices that the peer has left
  Transport::BrokenLink broken;
  EXPECT_TRUE(at(0).NextBroken(&broken));
  EXPECT_EQ(broken.peer, 1);
  Watched receive;
  at(0).Receive(1, {1, 1}, nullptr, data.size(), &receive);
  ASSERT_TRUE(Drive([&] { return receive.done(); }));
  EXPECT_TRUE(receive.status().ok()) << receive.status();
  EXPECT_EQ(receive.taken(), data);
  Watched more;
  at(0).Receive(1, {1, 2}, nullptr, 1, &more);
  ASSERT_TRUE(Drive([&] { return more.done(); }));
  EXPECT_EQ(more.status().code(), absl::StatusCode::kUnavailable) << more.status();
  EXPECT_FALSE(at(0).NextBroken(&broken)) << "it was told before";
}

// Waiting ---------------------------------------------------------------------------------------

TEST_P(TransportSuite, WakesAWaiter) {
  Make(2);
  at(0).Wake();
  at(0).Wait(30 * kSecond);  // remembers it
  std::atomic<int> waits{0};
  std::thread waiter([&] {
    const int64_t end = NowNanos() + 30 * kSecond;
    while (waits.load() < 5 && NowNanos() < end) at(0).Wait(30 * kSecond);
  });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // lets it fall asleep, often
    waits.fetch_add(1);
    at(0).Wake();
  }
  waiter.join();
  EXPECT_EQ(waits.load(), 5);
}

// Two threads that play ping-pong, pausing so that the other falls asleep at every stage of it.
TEST_P(TransportSuite, LosesNoWakeUp) {
  Make(2);
  constexpr uint32_t kRounds = 400;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::atomic<int> late{0};
  std::atomic<int> ended{0};
  auto play = [&](int rank) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    Transport& transport = at(rank);
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (round % 2 == static_cast<uint32_t>(rank)) {
        const int64_t pause = NowNanos() + static_cast<int64_t>(random() % 400'000);
        while (NowNanos() < pause) std::this_thread::yield();
        ASSERT_TRUE(transport.SendShort(1 - rank, {round, 0}, {}).ok());
        transport.Progress();
        continue;
      }
      Transport::ShortMessage message;
      const int64_t start = NowNanos();
      while (!transport.NextShort(&message)) {
        if (!transport.Progress()) transport.Wait(10 * kSecond);
        ASSERT_LT(NowNanos() - start, 30 * kSecond) << "round " << round;
      }
      if (NowNanos() - start > 15'000'000) late.fetch_add(1);
      ASSERT_EQ(message.tag.operation, round);
    }
    // What was sent last may still be on its way.
    ended.fetch_add(1);
    const int64_t end = NowNanos() + 30 * kSecond;
    while (ended.load() < 2 && NowNanos() < end) {
      if (!transport.Progress()) std::this_thread::yield();
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  // Half of the waits fall asleep. One that nobody wakes ends by itself in the end: late.
  EXPECT_LT(late.load(), static_cast<int>(kRounds) / 8);
}

// Ranks on threads of their own exchange random messages, in random order.
TEST_P(TransportSuite, CarriesRandomTraffic) {
  constexpr int kRanks = 3;
  constexpr uint32_t kMessages = 300;
  Make(kRanks);
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  auto size_of = [&](int from, int to, uint32_t index) {
    std::mt19937 random(seed + index * 9 + static_cast<unsigned>(from * kRanks + to));
    return size_t{random() % (size_t{1} << (random() % 19))};
  };
  auto work = [&](int rank) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    Transport& transport = at(rank);
    struct Open {
      int peer;
      uint32_t index;
      bool send;
      std::vector<std::byte> data;
      Watched request;
    };
    std::deque<Open> open;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (uint32_t i = 0; i < kMessages; ++i) {
        open.push_back({peer, i, true, Pattern(size_of(rank, peer, i), i), {}});
        open.push_back({peer, i, false, std::vector<std::byte>(size_of(peer, rank, i)), {}});
      }
    }
    std::vector<Open*> order;
    for (Open& entry : open) order.push_back(&entry);
    std::ranges::shuffle(order, random);
    for (Open* entry : order) {
      const Tag tag{entry->index, 0};
      if (entry->send) {
        transport.Send(entry->peer, tag, entry->data, &entry->request);
      } else {
        transport.Receive(entry->peer, tag, entry->data.data(), entry->data.size(),
                          &entry->request);
      }
      if (random() % 4 == 0) transport.Progress();
    }
    const int64_t end = NowNanos() + 60 * kSecond;
    auto all_done = [&] {
      return std::ranges::all_of(open, [](const Open& o) { return o.request.done(); });
    };
    while (!all_done()) {
      ASSERT_LT(NowNanos(), end) << "rank " << rank << " waits for ever";
      if (!transport.Progress()) transport.Wait(kSecond);
    }
    for (const Open& entry : open) {
      ASSERT_TRUE(entry.request.status().ok()) << entry.request.status();
      if (entry.send) continue;
      ASSERT_EQ(entry.data, Pattern(entry.data.size(), entry.index)) << "from " << entry.peer;
    }
  };
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      work(rank);
      // Peers may still read from here.
      ready.fetch_add(1);
      const int64_t end = NowNanos() + 60 * kSecond;
      while (ready.load() < kRanks && NowNanos() < end) {
        if (!at(rank).Progress()) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tutti::net
