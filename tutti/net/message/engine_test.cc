#include "tutti/net/message/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net::message {
namespace {

// What wires differ in.
struct Kind {
  bool invites_early = false;
  bool fetches = false;
};

// Carries what an engine says to another one, when the test wants: all in order, but for bytes,
// which may overtake.
class TestWire final : public Wire {
 public:
  explicit TestWire(const Kind& kind) : kind_(kind) {}
  void Join(Engine* peer) { peer_ = peer; }

  std::string Describe() const override { return "rank 1 (test)"; }
  void SendEager(Tag tag, ConstBytes data, Request* request) override {
    std::vector<std::byte> copy(data.begin(), data.end());
    Queue([=, this] { return peer_->receiver.OnEager(tag, copy); });
    request->Done(absl::OkStatus());
  }
  void SendOffer(Tag tag, const Offer& offer) override {
    ++offers;
    Queue([=, this] { return peer_->receiver.OnOffer(tag, offer); });
  }
  void SendInvitation(Tag tag, const Invitation& invitation) override {
    Queue([=, this] { return peer_->sender.OnInvitation(tag, invitation); });
  }
  void SendDiffers(uint64_t receive, uint64_t bytes) override {
    Queue([=, this] { return peer_->receiver.OnDiffers(receive, bytes); });
  }
  void SendTaken(uint64_t taken) override {
    Queue([=, this] { return peer_->sender.OnTaken(taken); });
  }
  absl::Status SendBytes(const Invitation& invitation, ConstBytes data, bool offered,
                         Request* request) override {
    bulk_.push_back([=, this] {
      OpenReceive* receive = peer_->receiver.Find(invitation.receive);
      if (receive == nullptr) return InvalidArgument("bytes for nobody");
      receive->begun = true;
      if (receive->destination != nullptr) {
        std::ranges::copy(data, receive->destination);
      } else if (!data.empty()) {
        receive->request->Take(0, data);
      }
      request->Done(absl::OkStatus());
      return peer_->receiver.Complete(receive, offered);
    });
    return absl::OkStatus();
  }
  MemoryKey KeyFor(ConstBytes data) override {
    if (!kind_.fetches) return {};
    return {.region = 1, .offset = reinterpret_cast<uintptr_t>(data.data())};
  }
  absl::Status Fetch(Tag tag, const Offer& offer, std::byte* destination,
                     Request* request) override {
    const ConstBytes data(reinterpret_cast<const std::byte*>(offer.key.offset), offer.bytes);
    if (destination != nullptr) {
      std::ranges::copy(data, destination);
    } else if (!data.empty()) {
      request->Take(0, data);
    }
    request->Done(absl::OkStatus());
    Queue([=, this] { return peer_->sender.OnFetched(tag, offer.send); });
    return absl::OkStatus();
  }

  // Delivers something; false if there is nothing.
  bool Deliver(std::mt19937& random) {
    auto& queue = bulk_.empty() || (!queue_.empty() && random() % 2 == 0) ? queue_ : bulk_;
    if (queue.empty()) return false;
    const auto next = std::move(queue.front());
    queue.pop_front();
    const absl::Status status = next();
    EXPECT_TRUE(status.ok()) << status;
    return true;
  }

  int offers = 0;

 private:
  void Queue(std::function<absl::Status()> what) { queue_.push_back(std::move(what)); }

  const Kind kind_;
  Engine* peer_ = nullptr;
  std::deque<std::function<absl::Status()>> queue_;
  std::deque<std::function<absl::Status()>> bulk_;
};

constexpr size_t kEager = 100;
constexpr uint32_t kTags = 6;

// Two ranks, of which the first sends and the second receives.
class Pair {
 public:
  explicit Pair(const Kind& kind, uint64_t window = 1000)
      : wires_{TestWire(kind), TestWire(kind)},
        limits_{.rank = 1,
                .eager_bytes = kEager,
                .window = window,
                .kept_bytes = 20'000,
                .invites_early = kind.invites_early},
        from(&wires_[0], &stash_, limits_),
        to(&wires_[1], &stash_, limits_) {
    wires_[0].Join(&to);
    wires_[1].Join(&from);
  }
  bool Deliver(std::mt19937& random) {
    const size_t first = random() % 2;
    return wires_[first].Deliver(random) || wires_[1 - first].Deliver(random);
  }
  int offers() const { return wires_[0].offers; }

 private:
  Stash stash_;
  TestWire wires_[2];
  Limits limits_;

 public:
  Engine from;
  Engine to;
};

class EngineTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Wires, EngineTest,
                         ::testing::Values(Kind{}, Kind{.invites_early = true},
                                           Kind{.fetches = true}));

// Whatever comes first, messages of a tag meet their receives in order, and nothing stays open.
TEST_P(EngineTest, MatchesInOrderWhateverComesFirst) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Pair pair(GetParam());
    // With early invitations a tag names one message at a time.
    const size_t most = GetParam().invites_early ? 1 : 10;
    std::map<uint32_t, std::vector<size_t>> lengths;
    std::map<uint32_t, size_t> sent, received;
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      const size_t count = 1 + random() % most;
      for (size_t i = 0; i < count; ++i) {
        lengths[tag].push_back(random() % 2 == 0 ? random() % kEager : random() % 2000);
      }
    }
    std::deque<Watched> requests;
    std::deque<std::vector<std::byte>> data;
    struct Expected {
      const Watched* request;
      uint32_t tag;
      size_t number;
    };
    std::vector<Expected> receives;
    const auto pattern = [&](uint32_t tag, size_t number) {
      return Pattern(lengths[tag][number], tag * 100 + number);
    };
    for (int idle = 0; idle < 1000;) {
      const uint32_t tag = random() % kTags;
      const uint32_t what = random() % 4;
      ++idle;
      if (what == 0 && sent[tag] < lengths[tag].size()) {
        data.push_back(pattern(tag, sent[tag]++));
        ASSERT_TRUE(pair.from.sender.Send({7, tag}, data.back(), &requests.emplace_back()).ok());
        idle = 0;
      } else if (what == 1 && received[tag] < lengths[tag].size()) {
        const size_t number = received[tag]++;
        receives.push_back({&requests.emplace_back(), tag, number});
        ASSERT_TRUE(
            pair.to.receiver.Receive({7, tag}, nullptr, lengths[tag][number], &requests.back())
                .ok());
        idle = 0;
      } else if (what > 1 && pair.Deliver(random)) {
        idle = 0;
      }
    }
    for (const Expected& one : receives) {
      ASSERT_TRUE(one.request->done()) << "round " << round;
      ASSERT_TRUE(one.request->status().ok()) << one.request->status();
      EXPECT_EQ(one.request->taken(), pattern(one.tag, one.number)) << one.tag << "." << one.number;
    }
    EXPECT_TRUE(std::ranges::all_of(requests, &Watched::done));
    EXPECT_FALSE(pair.from.HasOpen() || pair.to.HasOpen());
  }
}

TEST_P(EngineTest, EndsBothSidesWhereLengthsDiffer) {
  std::mt19937 random(1);
  for (const bool receive_first : {false, true}) {
    Pair pair(GetParam());
    const std::vector<std::byte> data = Pattern(1000, 1);
    Watched send, receive;
    const auto post = [&] {
      ASSERT_TRUE(pair.to.receiver.Receive({1, 2}, nullptr, 999, &receive).ok());
      while (pair.Deliver(random)) continue;
    };
    if (receive_first) post();
    ASSERT_TRUE(pair.from.sender.Send({1, 2}, data, &send).ok());
    while (pair.Deliver(random)) continue;
    if (!receive_first) post();
    ASSERT_TRUE(send.done() && receive.done());
    EXPECT_EQ(MessageOf(receive.status()),
              "rank 1 (test): message 1.2 has 1000 bytes, expected 999");
    EXPECT_EQ(MessageOf(send.status()),
              "rank 1 (test): message 1.2 has 1000 bytes, but the receiver expects 999");
    EXPECT_FALSE(pair.from.HasOpen() || pair.to.HasOpen());
  }
}

TEST_P(EngineTest, OneThatRunsAheadWaits) {
  std::mt19937 random(1);
  Pair pair(GetParam(), /*window=*/3 * EagerCost(10));
  const std::vector<std::byte> data = Pattern(10, 1);
  std::deque<Watched> sends, receives;
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair.from.sender.Send({1, i}, data, &sends.emplace_back()).ok());
  }
  while (pair.Deliver(random)) continue;
  EXPECT_EQ(std::ranges::count_if(sends, &Watched::done), 3);
  EXPECT_EQ(pair.offers(), 7);
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair.to.receiver.Receive({1, i}, nullptr, 10, &receives.emplace_back()).ok());
    while (pair.Deliver(random)) continue;
  }
  EXPECT_TRUE(std::ranges::all_of(sends, &Watched::done));
  EXPECT_TRUE(std::ranges::all_of(receives, &Watched::done));
}

TEST_P(EngineTest, CloseEndsEachRequestOnceAndKeepsWhatCame) {
  std::mt19937 random(1);
  Pair pair(GetParam());
  const std::vector<std::byte> small = Pattern(10, 1), large = Pattern(1000, 2);
  Watched kept, waiting, open_small, open_large, late, never;
  ASSERT_TRUE(pair.from.sender.Send({1, 1}, small, &kept).ok());
  ASSERT_TRUE(pair.from.sender.Send({1, 2}, large, &waiting).ok());
  ASSERT_TRUE(pair.to.receiver.Receive({1, 3}, nullptr, 10, &open_small).ok());
  ASSERT_TRUE(pair.to.receiver.Receive({1, 4}, nullptr, 1000, &open_large).ok());
  while (pair.Deliver(random)) continue;
  pair.from.Close(Aborted("over"));
  pair.to.Close(Aborted("over"));
  for (const Watched* request : {&waiting, &open_small, &open_large}) {
    ASSERT_TRUE(request->done());
    EXPECT_EQ(request->status(), Aborted("over"));
  }
  EXPECT_TRUE(pair.to.receiver.TakeKept({1, 1}, nullptr, 10, &late));
  EXPECT_EQ(late.taken(), small);
  EXPECT_FALSE(pair.to.receiver.TakeKept({1, 2}, nullptr, 1000, &never)) << "it was only offered";
}

TEST_P(EngineTest, BoundsWhatAPeerMakesItKeep) {
  Pair pair(GetParam());
  const std::vector<std::byte> data = Pattern(kEager, 1);
  absl::Status status;
  uint32_t messages = 0;
  for (; status.ok() && messages < 1000; ++messages) {
    status = pair.to.receiver.OnEager({1, messages}, data);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(messages, 20'000 / EagerCost(kEager) + 1);
}

TEST_P(EngineTest, AnswersToNothingAreRefused) {
  Pair pair(GetParam());
  for (const absl::Status& status :
       {pair.from.sender.OnInvitation({1, 1}, {.receive = 1, .bytes = 5, .send = 3}),
        pair.from.sender.OnFetched({1, 1}, 3), pair.from.sender.OnTaken(1)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(pair.to.receiver.Find(1), nullptr);
}

}  // namespace
}  // namespace tutti::net::message
