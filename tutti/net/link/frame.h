#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

// What travels on a link: frames, each a head of fixed size, a body, and payloads behind it.
// docs/formats/links.md has the byte grammar. Everything here is a pure function.
namespace tutti::net::link {

inline constexpr size_t kHeadBytes = 28;
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
inline constexpr uint32_t kMaxPayloads = 1 << 20;
inline constexpr size_t kMostRegions = 4096;  // of shared memory that one side knows of the other

// The numbers travel.
enum class FrameKind : uint8_t {
  kHello = 1,     // first from both sides; the text is a Hello
  kOpen = 2,      // from the side that connected: messages may follow
  kMessage = 3,   // with payloads. number: of the message; text: its header
  kTaken = 4,     // number: bytes of payloads that were taken so far
  kWaiting = 5,   // the window is full: tell of everything that is taken
  kReleased = 6,  // number: of a message whose payloads are no longer read in place
  kRegion = 7,  // number: of a region of shared memory; a file comes with it; the text is its size
  kForgotten = 8,  // number: of a region that will not be used again
  kPing = 9,       // a sign of life
  kClose = 10,     // number: code of a status; text: its message
  kMessages = 11,  // without payloads. number: of the first; text: per message a u32 length, header
};
inline constexpr FrameKind kLastKind = FrameKind::kMessages;
// A frame with several messages has at most about as many bytes; a longer one has a frame to
// itself.
inline constexpr size_t kJoinedBytes = size_t{32} << 10;

inline constexpr uint8_t kPayloadCrc = 1;  // flag of kMessage: each payload has its CRC behind it

// Where a payload is: behind the frame (region 0), or in the sender's shared memory.
struct PayloadPlace {
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint32_t region = 0;

  static constexpr size_t kWireBytes = 20;
};

struct FrameHead {
  FrameKind kind = FrameKind::kPing;
  uint8_t flags = 0;
  uint32_t text_bytes = 0;
  uint32_t payloads = 0;
  uint64_t number = 0;
  uint32_t body_crc = 0;

  size_t body_bytes() const { return text_bytes + payloads * PayloadPlace::kWireBytes; }
};

// Head and body of a frame. REQUIRES: the text and the number of payloads are within their limits.
std::string EncodeFrame(FrameKind kind, uint64_t number, std::string_view text,
                        std::span<const PayloadPlace> payloads = {}, uint8_t flags = 0);

// The same for a frame without payloads whose text is in place, behind kHeadBytes that are written.
void SealFrame(FrameKind kind, uint64_t number, std::string* frame);

// The head, if its checksum is right and its values are allowed. DATA_LOSS where the checksum is
// wrong, else INVALID_ARGUMENT.
absl::StatusOr<FrameHead> ParseHead(std::span<const std::byte, kHeadBytes> bytes);

// A body of head.body_bytes() bytes. `text` points into it. DATA_LOSS where its checksum is wrong.
struct FrameBody {
  std::string_view text;
  std::vector<PayloadPlace> payloads;
};
absl::Status ParseBody(const FrameHead& head, std::string_view bytes, FrameBody* body);

// The next of the messages in `text`, which is shortened by it. INVALID_ARGUMENT where it is cut
// off. REQUIRES: the text is not empty.
absl::StatusOr<std::string_view> NextMessage(std::string_view* text);

// The text of a kHello.
struct Hello {
  uint64_t window = 0;  // bytes of payloads that the sender of the hello keeps untaken
  std::string host;     // one kernel and one network namespace
  std::string socket;   // abstract name of the Unix socket at which it joins memory; empty: nowhere
  std::string secret;   // to be shown there
};
std::string EncodeHello(const Hello& hello);
absl::StatusOr<Hello> ParseHello(std::string_view text);

}  // namespace tutti::net::link
