#include "tutti/net/transport_suite.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
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
  std::atomic<int> late_by_load{0};
  std::atomic<int> ended{0};
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t signalled = 0;  // rounds in which the condition variable was used
  auto play = [&](int rank) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    Transport& transport = at(rank);
    const auto pause = [&] {
      const int64_t end = NowNanos() + static_cast<int64_t>(random() % 400'000);
      while (NowNanos() < end) std::this_thread::yield();
    };
    const auto is_late = [](int64_t start) { return NowNanos() - start > 15'000'000; };
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (round % 2 == static_cast<uint32_t>(rank)) {
        pause();
        ASSERT_TRUE(transport.SendShort(1 - rank, {round, 0}, {}).ok());
        transport.Progress();
        pause();
        const std::lock_guard lock(mutex);
        ++signalled;
        changed.notify_one();
        continue;
      }
      Transport::ShortMessage message;
      int64_t start = NowNanos();
      while (!transport.NextShort(&message)) {
        if (!transport.Progress()) transport.Wait(10 * kSecond);
        ASSERT_LT(NowNanos() - start, 30 * kSecond) << "round " << round;
      }
      if (is_late(start)) late.fetch_add(1);
      ASSERT_EQ(message.tag.operation, round);
      start = NowNanos();
      std::unique_lock lock(mutex);
      changed.wait_for(lock, std::chrono::seconds(30), [&] { return signalled > round; });
      if (is_late(start)) late_by_load.fetch_add(1);
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
  // Half of the waits fall asleep. One that nobody wakes ends by itself in the end: late. On a busy
  // machine waits for anything are late; how many, those for a condition variable tell.
  EXPECT_LT(late.load(), static_cast<int>(kRounds) / 8 + 2 * late_by_load.load());
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
