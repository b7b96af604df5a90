#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

// Frames between ranks over UCX: active messages, each with a header of this form and optional
// data. docs/formats/ucx.md describes the fields of each kind.
namespace tutti::net::ucx {

enum class FrameKind : uint8_t {
  kHello = 1,  // nothing; so that the peer knows of this rank, and tells it when it leaves
  kShort = 2,
  kEager = 3,
  kOffer = 4,
  kInvitation = 5,
  kDiffers = 6,
  kTaken = 7,
  kData = 8,
  kPut = 9,
  kPutDone = 10,
  kGet = 11,
  kRefused = 12,
  kBye = 13,  // the sender leaves; `total`: frames that it has sent, this one left out
};

using FrameFlags = uint8_t;
inline constexpr FrameFlags kInOrder = 1;  // of kInvitation
inline constexpr FrameFlags kOffered = 2;  // of kData: an offer was sent
inline constexpr FrameFlags kToPut = 4;    // of kRefused: it answers a put, not a get

// Messages up to this size go without asking, each in one piece of every transport of UCX, so that
// they stay in order.
inline constexpr size_t kEagerBytes = size_t{4} << 10;
// Longer messages to a receive without memory come in pieces of this size.
inline constexpr size_t kPieceBytes = size_t{256} << 10;
inline constexpr size_t kMaxRefusalBytes = 512;

struct FrameHeader {
  uint64_t key = 0;  // of the receiver: proves that the sender belongs to the job
  uint32_t from = 0;
  FrameKind kind = FrameKind::kHello;
  FrameFlags flags = 0;
  uint16_t version = 1;
  uint64_t operation = 0;  // of the tag, or the offset of a memory key
  uint32_t index = 0;      // of the tag, or the region of a memory key
  uint32_t unused = 0;
  uint64_t id = 0;
  uint64_t offset = 0;  // of this piece
  uint64_t total = 0;   // bytes of the message

  Tag tag() const { return {operation, index}; }
  MemoryKey memory() const { return {index, operation}; }
};
static_assert(sizeof(FrameHeader) == 56);
static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory");

// A header that came, or INVALID_ARGUMENT. Says nothing about whether its key is right.
absl::StatusOr<FrameHeader> ReadHeader(const void* bytes, size_t size, size_t data_bytes);

// How a rank is reached: "HOST/KEY/ADDRESS", the last two in hexadecimal digits.
struct UcxEndpoint {
  std::string host;
  uint64_t key = 0;
  std::string address;  // of UCX's worker
};
std::string ToString(const UcxEndpoint& endpoint);
absl::StatusOr<UcxEndpoint> ParseUcxEndpoint(std::string_view text);

}  // namespace tutti::net::ucx
