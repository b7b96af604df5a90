#include "tutti/net/link/frame.h"

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

constexpr uint16_t kMagic = 0x6c74;  // "tl"
constexpr size_t kHeadCrcAt = kHeadBytes - sizeof(uint32_t);
constexpr size_t kMaxShortText = 4096;  // of every kind but kMessage
constexpr uint64_t kMaxBytes = uint64_t{1} << 48;

// Writes the head into the first bytes of a frame whose body is in place.
void WriteHead(FrameKind kind, uint8_t flags, size_t text_bytes, size_t payloads, uint64_t number,
               std::string* frame) {
  const uint32_t body_crc = tcp::Crc32c(AsBytes(std::string_view(*frame).substr(kHeadBytes)));
  std::string head;
  head.reserve(kHeadBytes);
  WireWriter writer(&head);
  writer.U16(kMagic);
  writer.U8(static_cast<uint8_t>(kind));
  writer.U8(flags);
  writer.U32(static_cast<uint32_t>(text_bytes));
  writer.U32(static_cast<uint32_t>(payloads));
  writer.U64(number);
  writer.U32(body_crc);
  writer.U32(tcp::Crc32c(AsBytes(head)));
  frame->replace(0, kHeadBytes, head);
}

}  // namespace

std::string EncodeFrame(FrameKind kind, uint64_t number, std::string_view text,
                        std::span<const PayloadPlace> payloads, uint8_t flags) {
  TUTTI_CHECK(text.size() <= kMaxTextBytes && payloads.size() <= kMaxPayloads);
  std::string frame;
  frame.reserve(kHeadBytes + text.size() + payloads.size() * PayloadPlace::kWireBytes);
  frame.resize(kHeadBytes);
  WireWriter body(&frame);
  body.Raw(text);
  for (const PayloadPlace& payload : payloads) {
    body.U64(payload.bytes);
    body.U64(payload.offset);
    body.U32(payload.region);
  }
  WriteHead(kind, flags, text.size(), payloads.size(), number, &frame);
  return frame;
}

void SealFrame(FrameKind kind, uint64_t number, std::string* frame) {
  WriteHead(kind, 0, frame->size() - kHeadBytes, 0, number, frame);
}

absl::StatusOr<FrameHead> ParseHead(std::span<const std::byte, kHeadBytes> bytes) {
  WireReader reader(AsText(bytes));
  const uint16_t magic = reader.U16();
  if (magic != kMagic) {
    return InvalidArgument("not a frame: begins with {:#06x}, expected {:#06x}", magic, kMagic);
  }
  const uint8_t kind = reader.U8();
  FrameHead head;
  head.kind = static_cast<FrameKind>(kind);
  head.flags = reader.U8();
  head.text_bytes = reader.U32();
  head.payloads = reader.U32();
  head.number = reader.U64();
  head.body_crc = reader.U32();
  const uint32_t crc = reader.U32();
  const uint32_t expected = tcp::Crc32c(bytes.first<kHeadCrcAt>());
  if (crc != expected) {
    return DataLoss("head of a frame is damaged: its CRC32C is {:08x}, the bytes give {:08x}", crc,
                    expected);
  }
  if (kind < 1 || kind > static_cast<uint8_t>(kLastKind)) {
    return InvalidArgument("frame kind {}, expected 1 to {}", kind, static_cast<int>(kLastKind));
  }
  const bool message = head.kind == FrameKind::kMessage;
  const bool messages = head.kind == FrameKind::kMessages;
  const size_t max_text = messages  ? kMaxTextBytes + kJoinedBytes
                          : message ? kMaxTextBytes
                                    : kMaxShortText;
  const uint32_t max_payloads = message ? kMaxPayloads : 0;
  const uint8_t max_flags = message ? kPayloadCrc : 0;
  if (head.text_bytes > max_text || head.payloads > max_payloads || head.flags > max_flags) {
    return InvalidArgument(
        "frame of kind {} with {} bytes of text, {} payloads and flags {}, expected at most {}, {} "
        "and {}",
        kind, head.text_bytes, head.payloads, head.flags, max_text, max_payloads, max_flags);
  }
  return head;
}

absl::Status ParseBody(const FrameHead& head, std::string_view bytes, FrameBody* body) {
  const uint32_t crc = tcp::Crc32c(AsBytes(bytes));
  if (crc != head.body_crc) {
    return DataLoss("body of a frame is damaged: its CRC32C is {:08x}, the bytes give {:08x}",
                    head.body_crc, crc);
  }
  body->text = bytes.substr(0, head.text_bytes);
  body->payloads.clear();
  WireReader reader(bytes.substr(head.text_bytes));
  for (uint32_t i = 0; i < head.payloads; ++i) {
    PayloadPlace payload;
    payload.bytes = reader.U64();
    payload.offset = reader.U64();
    payload.region = reader.U32();
    if (payload.bytes > kMaxBytes || (payload.region == 0 && payload.offset != 0)) {
      return InvalidArgument("payload {} of a message has {} bytes at offset {}", i, payload.bytes,
                             payload.offset);
    }
    body->payloads.push_back(payload);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> NextMessage(std::string_view* text) {
  WireReader reader(*text);
  const uint32_t bytes = reader.U32();
  const std::string_view message = reader.Raw(bytes);
  if (!reader.ok() || bytes > kMaxTextBytes) {
    return InvalidArgument("a message of {} bytes in a frame that has {} left", bytes,
                           text->size());
  }
  text->remove_prefix(sizeof(uint32_t) + bytes);
  return message;
}

std::string EncodeHello(const Hello& hello) {
  std::string text;
  WireWriter writer(&text);
  writer.U64(hello.window);
  writer.Text16(hello.host);
  writer.Text16(hello.socket);
  writer.Text16(hello.secret);
  return text;
}

absl::StatusOr<Hello> ParseHello(std::string_view text) {
  WireReader reader(text);
  Hello hello;
  hello.window = reader.U64();
  hello.host = reader.Text16();
  hello.socket = reader.Text16();
  hello.secret = reader.Text16();
  if (!reader.Complete() || hello.window == 0 || hello.socket.size() > 100) {
    return InvalidArgument("a hello of {} bytes does not fit its fields", text.size());
  }
  return hello;
}

}  // namespace tutti::net::link
