#pragma once

#include <cstddef>
#include <cstdint>

// What lies in a ring: cells of one cache line. A message is a header, and its payload right behind
// it, running on into the following cells; it never wraps around the end of the ring. A Grant and
// an Ack carry the tag of the Offer that they answer.
namespace tutti::net::memory {

inline constexpr size_t kCellBytes = 64;

enum class CellKind : uint8_t {
  kPad = 1,    // nothing: the next message begins at the start of the ring
  kShort = 2,  // a short message
  kEager = 3,  // a whole message
  kOffer = 4,  // a message that waits at the sender: Offer
  kGrant = 5,  // "send it through your staging memory": Grant
  kPiece = 6,  // a part of such a message: Piece
  kTaken = 7,  // the part has been read: Taken
  kAck = 8,    // an offered message has been read, or refused: Ack
  kRead = 9,   // of the whole messages so much has been taken so far: Read
};

struct CellHeader {
  // The message is complete once this equals the key of the mailbox plus the position of the cell
  // in the unbounded sequence of cells. Payload of earlier rounds may lie at this offset, but does
  // not contain the key; so cells are never cleared, and no further cache line is needed for the
  // producer's position.
  uint64_t sequence;
  uint64_t operation;  // Tag::operation
  uint32_t index;      // Tag::index
  uint16_t bytes;      // of the payload
  CellKind kind;
  uint8_t reserved;
};
static_assert(sizeof(CellHeader) == 24);

struct Offer {
  uint64_t bytes;
  uint64_t send;    // names the send in the Grant or Ack
  uint64_t offset;  // where the bytes lie; region 0: in no memory that the receiver can reach
  uint32_t region;
  uint32_t reserved;
};

struct Grant {
  uint64_t send;
  uint64_t receive;  // names the receive in every Piece
  uint64_t bytes;    // that are expected
};

struct Piece {
  uint64_t receive;
  uint64_t at;      // of the message
  uint64_t offset;  // in the sender's region
  uint32_t region;
  uint32_t slot_and_bytes;  // slot << 24 | bytes
};
inline constexpr uint32_t kPieceSlots = 4;
inline constexpr size_t kPieceBytes = 128 << 10;  // fits the second-level cache, both sides at once

struct Taken {
  uint32_t slot;
};

struct Ack {
  uint64_t send;
  uint64_t refused;   // 0: read; 1: the receiver expected another length
  uint64_t expected;  // that length
};

struct Read {
  uint64_t taken;  // as tutti/net/message/eager_window.h counts
};

// How many cells a message takes.
constexpr uint64_t CellsFor(size_t payload_bytes) {
  return (sizeof(CellHeader) + payload_bytes + kCellBytes - 1) / kCellBytes;
}

// What fits behind the header in one cell: short messages, and all of the structs above.
inline constexpr size_t kInlineBytes = kCellBytes - sizeof(CellHeader);
static_assert(sizeof(Offer) <= kInlineBytes && sizeof(Piece) <= kInlineBytes);

}  // namespace tutti::net::memory
