#include "tutti/net/memory/ring.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/net/memory/mailbox.h"

namespace tutti::net::memory {
namespace {

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// A mailbox for two ranks with the smallest rings there are.
class RingTest : public testing::Test {
 protected:
  static constexpr uint64_t kCells = 128;

  RingTest() {
    const size_t bytes = Mailbox::BytesFor(2, kCells);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    std::memset(memory_.get(), 0, bytes);
    bytes_ = Bytes(memory_.get(), bytes);
    mailbox_ = Mailbox::Format(bytes_, 2, kCells);
  }

  bool Write(RingProducer& producer, const std::vector<std::byte>& payload, uint64_t operation) {
    CellHeader* cell = producer.Reserve(payload.size());
    if (cell == nullptr) return false;
    cell->operation = operation;
    cell->kind = CellKind::kEager;
    cell->bytes = static_cast<uint16_t>(payload.size());
    if (!payload.empty()) std::memcpy(cell + 1, payload.data(), payload.size());
    producer.Publish(cell, payload.size());
    return true;
  }

  std::unique_ptr<std::byte, FreeDeleter> memory_;
  Bytes bytes_;
  Mailbox mailbox_;
};

TEST_F(RingTest, CarriesMessagesOfRandomLengthAcrossThreads) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr uint64_t kMessages = 3'000;
  RingProducer producer(mailbox_.ring(1));
  RingConsumer consumer(mailbox_.ring(1));
  const size_t longest = producer.max_payload();
  const int64_t end = NowNanos() + 60'000'000'000;
  std::thread writer([&] {
    std::mt19937 random(seed);
    for (uint64_t i = 0; i < kMessages; ++i) {
      const std::vector<std::byte> payload(random() % (longest + 1), static_cast<std::byte>(i));
      while (!Write(producer, payload, i)) {
        ASSERT_LT(NowNanos(), end);
        std::this_thread::yield();
      }
    }
  });
  std::mt19937 random(seed);
  RingConsumer::Message message;
  for (uint64_t i = 0; i < kMessages; ++i) {
    while (consumer.Peek(&message) == RingConsumer::Found::kNothing) {
      if (NowNanos() > end) break;
      std::this_thread::yield();
    }
    EXPECT_EQ(message.header.operation, i);
    EXPECT_EQ(message.header.bytes, random() % (longest + 1));
    for (size_t b = 0; b < message.header.bytes; ++b) {
      if (message.payload[b] != static_cast<std::byte>(i)) {
        ADD_FAILURE() << "byte " << b << " of message " << i;
        break;
      }
    }
    if (testing::Test::HasFailure()) break;
    consumer.Pop(message);
  }
  writer.join();
  EXPECT_FALSE(consumer.Ready());
}

// Payload lies where the sequences of the next round are looked for. Here it counts cells, as a
// sequence without a key would: it must not be taken for a message.
TEST_F(RingTest, TakesNoPayloadForAMessage) {
  RingProducer producer(mailbox_.ring(0));
  RingConsumer consumer(mailbox_.ring(0));
  RingConsumer::Message message;
  uint64_t position = 0;
  for (uint64_t i = 0; i < 10 * kCells; ++i) {
    // Every seventh is one cell long, so that each round begins its messages at other cells.
    const uint64_t cells = i % 7 == 0 ? 1 : 3;
    const uint64_t to_end = kCells - position % kCells;
    if (to_end < cells) position += to_end;
    std::vector<uint64_t> words(cells == 1 ? 0 : 20);
    if (cells > 1) {
      words[5] = position + 1 + kCells;  // lies at the start of the second cell
      words[13] = position + 2 + kCells;
    }
    std::vector<std::byte> payload(words.size() * sizeof(uint64_t));
    if (cells > 1) std::memcpy(payload.data(), words.data(), payload.size());
    ASSERT_TRUE(Write(producer, payload, i));
    position += cells;
    ASSERT_EQ(consumer.Peek(&message), RingConsumer::Found::kMessage);
    ASSERT_EQ(message.header.operation, i);
    consumer.Pop(message);
    ASSERT_EQ(consumer.Peek(&message), RingConsumer::Found::kNothing) << "message " << i;
  }
}

TEST_F(RingTest, IsFullAtItsEndAndGetsRoomAgain) {
  RingProducer producer(mailbox_.ring(0));
  RingConsumer consumer(mailbox_.ring(0));
  uint64_t written = 0;
  while (Write(producer, {}, written)) ++written;
  EXPECT_EQ(written, kCells);
  EXPECT_FALSE(producer.RoomChanged());
  RingConsumer::Message message;
  bool told = false;
  for (uint64_t i = 0; i < kCells / 4; ++i) {
    ASSERT_EQ(consumer.Peek(&message), RingConsumer::Found::kMessage);
    EXPECT_FALSE(told);
    told = consumer.Pop(message);
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(producer.RoomChanged());
  EXPECT_TRUE(Write(producer, {}, 0));
}

TEST_F(RingTest, NoticesACellThatReachesBeyondTheRing) {
  RingProducer producer(mailbox_.ring(0));
  RingConsumer consumer(mailbox_.ring(0));
  CellHeader* cell = producer.Reserve(0);
  cell->kind = CellKind::kEager;
  cell->bytes = kCells * kCellBytes;
  producer.Publish(cell, 0);
  RingConsumer::Message message;
  EXPECT_EQ(consumer.Peek(&message), RingConsumer::Found::kCorrupt);
}

TEST_F(RingTest, NoticesPaddingWithoutEnd) {
  RingProducer producer(mailbox_.ring(0));
  RingConsumer consumer(mailbox_.ring(0));
  CellHeader* cell = producer.Reserve(0);
  cell->kind = CellKind::kPad;
  producer.Publish(cell, 0);
  RingConsumer::Message message;
  EXPECT_EQ(consumer.Peek(&message), RingConsumer::Found::kCorrupt);
}

TEST_F(RingTest, NoticesAReaderThatIsAheadOfTheWriter) {
  RingProducer producer(mailbox_.ring(0));
  mailbox_.ring(0).header->consumed.store(kCells * 2);
  for (uint64_t i = 0; i < kCells; ++i) ASSERT_TRUE(Write(producer, {}, i));
  EXPECT_FALSE(Write(producer, {}, kCells));
  EXPECT_TRUE(producer.corrupt());
}

TEST_F(RingTest, MailboxesThatDoNotFitAreRefused) {
  EXPECT_TRUE(Mailbox::Open(bytes_, 2).ok());
  EXPECT_EQ(Mailbox::Open(bytes_, 3).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Mailbox::Open(bytes_.first(bytes_.size() - 1), 2).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(Mailbox::Open(bytes_.first(10), 2).status().code(), absl::StatusCode::kDataLoss);
  const uint64_t cells = uint64_t{1} << 60;
  std::memcpy(bytes_.data() + 16, &cells, sizeof(cells));
  EXPECT_EQ(Mailbox::Open(bytes_, 2).status().code(), absl::StatusCode::kDataLoss);
  bytes_[0] = std::byte{0};
  EXPECT_EQ(Mailbox::Open(bytes_, 2).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tutti::net::memory
