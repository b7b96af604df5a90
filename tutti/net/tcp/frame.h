#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/base/crc32c.h"
#include "tutti/net/transport.h"

// What travels on a data connection after the handshake: frames, each a header of fixed size and up
// to kMaxPayload bytes. docs/formats/data-plane.md has the byte grammar. Everything here is a pure
// function.
namespace tutti::net::tcp {

// 512 KB stay in a core's second-level cache between the checksum and the copy into the kernel (or
// back). Within a host each frame costs turns between the two ends: `tutti bench allreduce
// --transport tcp`, 4 MB on 2 ranks, 1.6 GB/s with 256 KB, 2.0 with 512 KB.
inline constexpr size_t kMaxPayload = size_t{512} << 10;
// Messages up to this size are sent without asking, while the window of
// tutti/net/message/eager_window.h is open; larger ones wait for the receiver's kReady.
inline constexpr size_t kEagerBytes = size_t{64} << 10;
inline constexpr size_t kMaxRefusalBytes = 512;
inline constexpr size_t kHeaderBytes = 52;

// The numbers travel.
enum class FrameKind : uint8_t {
  kShort = 1,     // a whole short message
  kEager = 2,     // a whole message of up to kEagerBytes
  kAnnounce = 3,  // a larger one, or one past the window, waits here for its kReady
  kReady = 4,     // receiver to sender: its memory is there, send to `id`
  kDiffers = 5,   // sender to receiver: the message for `id` has another length, `total`
  kData = 6,      // bytes [offset, offset + payload) for `id`
  kPut = 7,       // the same, for registered memory
  kPutDone = 8,   // answers the last kPut of `id`
  kGet = 9,       // asks for `total` bytes of registered memory, as kData for `id`
  kRefused = 10,  // answers a kPut or kGet that cannot be done; the payload says why
  kTaken = 11,    // receiver to sender: of its kEager frames `total` has been taken so far
};

using FrameFlags = uint8_t;
inline constexpr FrameFlags kInOrder = 1;    // of kReady: send on one stream, to arrive in order
inline constexpr FrameFlags kAnnounced = 2;  // of kData: a kAnnounce was sent before
inline constexpr FrameFlags kToPut = 4;      // of kRefused: a kPut is refused, not a kGet

struct FrameHeader {
  FrameKind kind = FrameKind::kShort;
  FrameFlags flags = 0;
  uint32_t index = 0;      // Tag::index, or MemoryKey::region
  uint64_t operation = 0;  // Tag::operation, or MemoryKey::offset of the message's first byte
  uint64_t id = 0;         // of a receive, get or put, chosen by the one who waits for its end
  uint64_t offset = 0;     // of the payload in the message
  uint64_t total = 0;      // bytes of the message
  uint32_t payload = 0;    // bytes that follow the header
  uint32_t payload_crc = 0;
  bool operator==(const FrameHeader&) const = default;

  Tag tag() const { return {operation, index}; }
  MemoryKey key() const { return {index, operation}; }
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes EncodeHeader(const FrameHeader& header);

// The header in `bytes`, if its checksum is right and every field has a value that its kind allows:
// a header that comes out of here needs no further check but of what only the receiver knows (is
// `id` open, does the memory exist). DATA_LOSS where the checksum is wrong, else INVALID_ARGUMENT.
absl::StatusOr<FrameHeader> ParseHeader(std::span<const std::byte, kHeaderBytes> bytes);

using tutti::Crc32c;

std::string_view NameOf(FrameKind kind);

}  // namespace tutti::net::tcp
