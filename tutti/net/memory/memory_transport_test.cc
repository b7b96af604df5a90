#include "tutti/net/memory/memory_transport.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net::memory {
namespace {

// Memory of which nothing can be reached but what was allocated, as between processes.
class PlainSpace final : public Space {
 public:
  std::string Describe(int peer) const override { return "rank " + std::to_string(peer); }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t) override {
    return Unimplemented("not in this test");
  }
  MemoryKey KeyOf(const void*, size_t) const override { return {}; }
  absl::StatusOr<std::byte*> Map(int, MemoryKey, size_t) override {
    return NotFound("not in this test");
  }
  bool NextEvent(Event*) override { return false; }
};

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// A transport of rank 0, and a peer of which the test writes every cell itself.
class HostilePeerTest : public testing::Test {
 protected:
  static constexpr uint64_t kCells = 128;

  HostilePeerTest() {
    for (int rank = 0; rank < 2; ++rank) {
      const size_t bytes = Mailbox::BytesFor(2, kCells);
      memory_[rank].reset(
          static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
      std::memset(memory_[rank].get(), 0, bytes);
      mailboxes_[rank] = Mailbox::Format(Bytes(memory_[rank].get(), bytes), 2, kCells);
    }
    transport_ = std::make_unique<MemoryTransport>(
        std::make_unique<PlainSpace>(),
        HostRanks{.rank = 0,
                  .size = 2,
                  .own = mailboxes_[0],
                  .reachable = {{.rank = 0, .mailbox = mailboxes_[0]},
                                {.rank = 1, .mailbox = mailboxes_[1]}}});
    producer_ = std::make_unique<RingProducer>(mailboxes_[0].ring(1));
  }

  void Write(CellKind kind, ConstBytes payload, Tag tag = {}) {
    CellHeader* cell = producer_->Reserve(payload.size());
    ASSERT_NE(cell, nullptr);
    cell->kind = kind;
    cell->operation = tag.operation;
    cell->index = tag.index;
    cell->bytes = static_cast<uint16_t>(payload.size());
    if (!payload.empty()) std::memcpy(cell + 1, payload.data(), payload.size());
    producer_->Publish(cell, payload.size());
  }
  template <typename T>
  void WriteStruct(CellKind kind, const T& value, Tag tag = {}) {
    Write(kind, std::as_bytes(std::span(&value, 1)), tag);
  }

  void ExpectBroken(absl::StatusCode code) {
    Watched open;
    transport_->Receive(1, {99, 99}, nullptr, 1, &open);
    Transport::BrokenLink broken;
    for (int i = 0; i < 10; ++i) transport_->Progress();
    ASSERT_TRUE(transport_->NextBroken(&broken));
    EXPECT_EQ(broken.peer, 1);
    EXPECT_EQ(broken.status.code(), code) << broken.status;
    EXPECT_NE(MessageOf(broken.status).find("rank 1"), std::string_view::npos) << broken.status;
    EXPECT_FALSE(transport_->NextBroken(&broken));
    ASSERT_TRUE(open.done());
    EXPECT_EQ(open.status(), broken.status);
  }

  std::unique_ptr<std::byte, FreeDeleter> memory_[2];
  Mailbox mailboxes_[2];
  std::unique_ptr<MemoryTransport> transport_;
  std::unique_ptr<RingProducer> producer_;
};

TEST_F(HostilePeerTest, UnknownKind) {
  Write(static_cast<CellKind>(77), {});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, StructOfAnotherSize) {
  Write(CellKind::kOffer, Pattern(5, 1));
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, LongShortMessage) {
  Write(CellKind::kShort, Pattern(Transport::kShortBytes + 1, 1));
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, AckOfNothing) {
  WriteStruct(CellKind::kAck, Ack{.send = (uint64_t{1} << 32) | 5});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, GrantOfNothing) {
  WriteStruct(CellKind::kGrant, Grant{.send = 1, .receive = 1});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, SlotThatWasNotGiven) {
  WriteStruct(CellKind::kTaken, Taken{.slot = 1'000'000});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, ReadsWhatWasNotSent) {
  WriteStruct(CellKind::kRead, Read{.taken = 1});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, PieceOfNothing) {
  WriteStruct(CellKind::kPiece, Piece{.receive = 3, .slot_and_bytes = 64});
  ExpectBroken(absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, PieceThatIsTooLong) {
  Watched receive;
  std::vector<std::byte> destination(100'000);
  transport_->Receive(1, {1, 1}, destination.data(), destination.size(), &receive);
  WriteStruct(CellKind::kOffer, Offer{.bytes = destination.size(), .send = 4}, {1, 1});
  for (int i = 0; i < 10; ++i) transport_->Progress();
  RingConsumer answers(mailboxes_[1].ring(0));
  RingConsumer::Message message;
  ASSERT_EQ(answers.Peek(&message), RingConsumer::Found::kMessage);
  ASSERT_EQ(message.header.kind, CellKind::kGrant);
  Grant grant;
  std::memcpy(&grant, message.payload, sizeof(grant));
  EXPECT_EQ(grant.send, 4u);
  WriteStruct(CellKind::kPiece, Piece{.receive = grant.receive, .slot_and_bytes = 100'001});
  ExpectBroken(absl::StatusCode::kDataLoss);
  EXPECT_TRUE(receive.done());
}

TEST_F(HostilePeerTest, OfferOfMemoryThatIsNotThere) {
  Watched receive;
  transport_->Receive(1, {1, 1}, nullptr, 100'000, &receive);
  WriteStruct(CellKind::kOffer, Offer{.bytes = 100'000, .send = 4, .region = 17}, {1, 1});
  ExpectBroken(absl::StatusCode::kNotFound);
  EXPECT_TRUE(receive.done());
}

TEST_F(HostilePeerTest, MoreEarlyMessagesThanMemory) {
  const std::vector<std::byte> payload = Pattern(1000, 1);
  Transport::BrokenLink broken;
  for (uint64_t i = 0; i < 100'000 && !transport_->NextBroken(&broken); ++i) {
    Write(CellKind::kEager, payload, {i, 0});
    transport_->Progress();
  }
  EXPECT_EQ(broken.peer, 1);
  EXPECT_EQ(broken.status.code(), absl::StatusCode::kResourceExhausted) << broken.status;
}

TEST_F(HostilePeerTest, RandomCells) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Watched receive;
  std::vector<std::byte> destination(50'000);
  transport_->Receive(1, {0, 0}, destination.data(), destination.size(), &receive);
  Transport::BrokenLink broken;
  for (int i = 0; i < 10'000 && !transport_->NextBroken(&broken); ++i) {
    Write(static_cast<CellKind>(1 + random() % 10), Pattern(random() % 100, random()),
          {random() % 2, static_cast<uint32_t>(random() % 2)});
    transport_->Progress();
  }
  EXPECT_EQ(broken.peer, 1);
  EXPECT_TRUE(receive.done());
}

}  // namespace
}  // namespace tutti::net::memory
