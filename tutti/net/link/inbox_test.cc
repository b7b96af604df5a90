#include "tutti/net/link/inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/link/link_test_task.h"
#include "tutti/net/link/outbox.h"
#include "tutti/net/socket.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

// Notes messages as one text each.
class Notes final : public Inbox::Reader {
 public:
  absl::Status OnControl(const FrameHead& head, std::string_view) override {
    controls.push_back(head.kind);
    return absl::OkStatus();
  }
  absl::Status Place(std::string_view, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] > (1 << 20)) return ResourceExhausted("too large for this test");
      memory_.push_back(std::make_unique<std::byte[]>(sizes[i]));
      places[i] = Bytes(memory_.back().get(), sizes[i]);
    }
    return absl::OkStatus();
  }
  absl::Status OnMessage(std::string_view header, std::vector<Payload> payloads) override {
    std::string text(header);
    for (const Payload& payload : payloads) {
      text += "|";
      text += AsText(payload.bytes);
    }
    messages.push_back(text);
    return absl::OkStatus();
  }
  std::shared_ptr<const void> Lease(uint64_t,
                                    std::vector<std::shared_ptr<const shm::SharedPages>>) override {
    return nullptr;
  }

  std::vector<std::string> messages;
  std::vector<FrameKind> controls;

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// What an outbox writes.
std::string Written(Outbox* outbox) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket out(ends[0]), in(ends[1]);
  std::string bytes;
  std::vector<std::byte> piece(1 << 16);
  for (Outbox::Result result = Outbox::Result::kFull; result != Outbox::Result::kDone;) {
    int error = 0;
    result = outbox->Write(out.fd(), 1000, true, &error);
    EXPECT_NE(result, Outbox::Result::kLost);
    for (IoResult read = ReadSome(in.fd(), piece); read.kind == IoResult::Kind::kMoved;
         read = ReadSome(in.fd(), piece)) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), read.bytes);
    }
  }
  return bytes;
}

std::vector<std::string> SendSome(Outbox* outbox) {
  std::vector<std::string> expected;
  for (int i = 0; i < 20; ++i) {
    const std::string header = "header " + std::to_string(i);
    const std::string first(static_cast<size_t>(i * i * 7), static_cast<char>('a' + i));
    outbox->Send(header, i % 3 == 0 ? std::vector<Payload>{}
                                    : std::vector<Payload>{PayloadOf(first), PayloadOf("")});
    expected.push_back(i % 3 == 0 ? header : header + "|" + first + "|");
    if (i % 5 == 0) outbox->SendControl(FrameKind::kPing);
  }
  // Messages without payloads share frames, of which one is full.
  for (int i = 0; i < 1000; ++i) {
    expected.push_back("bare " + std::to_string(i) +
                       std::string(static_cast<size_t>(i % 100), 'x'));
    outbox->Send(expected.back(), {});
  }
  return expected;
}

// What cannot leave at once leaves together.
TEST(Outbox, BareMessagesShareAFrame) {
  Outbox outbox;
  outbox.Open({.window = 1 << 20});
  for (int i = 0; i < 100; ++i) outbox.Send("x", {});
  const std::string bytes = Written(&outbox);
  EXPECT_EQ(bytes.size(), kHeadBytes + 100 * 5);
  EXPECT_EQ(outbox.bytes(), bytes.size());
  EXPECT_EQ(outbox.messages(), 100u);
  outbox.Send("y", {});  // the frame before it has left
  EXPECT_EQ(Written(&outbox).size(), kHeadBytes + 5);
}

TEST(Inbox, ReadsWhatAnOutboxWritesInPiecesOfAnySize) {
  for (const bool checksums : {false, true}) {
    Outbox outbox;
    outbox.Open({.window = 1 << 20, .checksums = checksums});
    const std::vector<std::string> expected = SendSome(&outbox);
    const std::string bytes = Written(&outbox);
    for (const size_t piece : {1, 7, 100, 100'000}) {
      Notes notes;
      Inbox inbox(&notes);
      inbox.Open(false);
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ThrowIfError(inbox.Consume(AsBytes(std::string_view(bytes).substr(at, piece))));
      }
      EXPECT_EQ(notes.messages, expected);
      EXPECT_EQ(notes.controls.size(), 4u);
      EXPECT_EQ(inbox.messages(), expected.size());
    }
  }
}

// Whatever byte is changed, what is handed over is what was sent.
TEST(Inbox, AChangedByteIsSeen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Outbox outbox;
  outbox.Open({.window = 1 << 20, .checksums = true});
  const std::vector<std::string> expected = SendSome(&outbox);
  const std::string bytes = Written(&outbox);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string changed = bytes;
    const size_t at = random() % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ static_cast<char>(1 + random() % 255));
    Notes notes;
    Inbox inbox(&notes);
    inbox.Open(false);
    const absl::Status status = inbox.Consume(AsBytes(changed));
    EXPECT_FALSE(status.ok()) << "byte " << at;
    ASSERT_LE(notes.messages.size(), expected.size());
    for (size_t i = 0; i < notes.messages.size(); ++i) {
      ASSERT_EQ(notes.messages[i], expected[i]) << "byte " << at;
    }
  }
}

// A million payloads without bytes, which no recursion survives.
TEST(Inbox, ManyEmptyPayloads) {
  Notes notes;
  Inbox inbox(&notes);
  inbox.Open(false);
  const std::vector<PayloadPlace> places(kMaxPayloads);
  ThrowIfError(inbox.Consume(AsBytes(EncodeFrame(FrameKind::kMessage, 1, "x", places))));
  ASSERT_EQ(notes.messages.size(), 1u);
  EXPECT_EQ(notes.messages[0].size(), 1 + size_t{kMaxPayloads});
}

}  // namespace
}  // namespace tutti::net::link
