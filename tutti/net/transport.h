#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tutti::net {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// The value of a rank argument that names no rank: a failure without a single rank as its cause.
inline constexpr int kNoRank = -1;

// Names a message between two ranks: the operation it belongs to, and its number among the messages
// that this operation sends from the one to the other.
struct Tag {
  uint64_t operation = 0;
  uint32_t index = 0;
  bool operator==(const Tag&) const = default;
};

// A place in memory that a rank registered: what a peer needs to reach it.
struct MemoryKey {
  uint32_t region = 0;  // 0 names no memory
  uint64_t offset = 0;
  bool operator==(const MemoryKey&) const = default;
};

// How the bytes of a peer are reached.
enum class LinkKind : uint8_t {
  kSelf,    // the peer is this rank: only Map goes there
  kMemory,  // loads and stores: Map gives a pointer into the peer's registered memory
  kSocket,  // messages only
};

// A Send, Receive, Put or Get under way. The caller owns it and keeps it, and the bytes it names,
// alive and untouched until Done. Both functions are called from within Progress or the call that
// started the request, and must not call the transport.
class Request {
 public:
  // Once. After an error nothing is known of the bytes.
  virtual void Done(const absl::Status& status) = 0;

  // For a Receive without memory: bytes [offset, offset + piece.size()) of the message. Pieces come
  // in order; every one but the last begins and ends at a multiple of 64. They have passed the
  // link's checks (CRC), so what is taken may be reduced. `piece` is the caller's until it returns.
  virtual void Take(size_t offset, ConstBytes piece);

 protected:
  ~Request() = default;
};

// Memory that peers can reach, given back when it is destroyed. 4096-byte aligned, zeroed, in large
// pages where the system has them.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  virtual Bytes bytes() const = 0;
  virtual MemoryKey key() const = 0;
};

// Moves bytes between the ranks of one job, seen from one of them. Messages and Receives of one tag
// are matched one to one. A message may arrive before its Receive is posted: small ones are
// buffered; large ones, and small ones of a rank that is far ahead, wait at the sender. Different
// tags do not block each other. A tag names one message between two ranks and may be reused once
// that message was received. Two messages of one tag in flight can be confused, because over
// sockets long and short messages travel on different streams. A rank has no link to itself: naming
// its own rank, except in Map, is an INVALID_ARGUMENT.
//
// Not thread-safe, except where said: the engine calls it under its lock, from whichever thread
// makes progress. Nothing blocks but Wait.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual LinkKind link(int peer) const = 0;
  virtual std::string Describe(int peer) const = 0;  // "rank 2 (10.0.0.7:4711, tcp)"

  // Memory ---------------------------------------------------------------------------------------

  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) = 0;
  // Registers memory that the caller owns, so that peers reach it by Put and Get over sockets; they
  // cannot Map it. For RDMA, whose network cards reach registered memory only, and for memory that
  // was not made by Allocate, which collectives use.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Bytes bytes) = 0;
  // The key of [data, data + bytes) if it lies in memory from Allocate; region 0 otherwise.
  virtual MemoryKey KeyOf(const void* data, size_t bytes) const = 0;
  // Where [key, key + bytes) of the peer lies in this process. kMemory and kSelf links only. The
  // pointer is good as long as the peer keeps the memory. Checks that the range is inside it.
  virtual absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) = 0;
  // One-sided: the peer does not call anything. A Put is done when the bytes are in place. For
  // fabrics that read and write remote memory by RDMA. Collectives use messages and Map; tensors
  // between the tasks of a cluster travel over links (tutti/net/link), which are no transport.
  virtual void Put(int peer, MemoryKey destination, ConstBytes source, Request* request) = 0;
  virtual void Get(int peer, MemoryKey source, Bytes destination, Request* request) = 0;

  // Messages -------------------------------------------------------------------------------------

  // Done when `data` may be changed.
  virtual void Send(int peer, Tag tag, ConstBytes data, Request* request) = 0;
  // A message of exactly `bytes` bytes; another length is an INVALID_ARGUMENT that names both. They
  // land at `destination`, or, where that is null, are handed to request->Take.
  virtual void Receive(int peer, Tag tag, std::byte* destination, size_t bytes,
                       Request* request) = 0;
  // A short message (up to kShortBytes) that needs no buffer of the caller's: it is copied at once,
  // and completes at once. Comes out of NextShort at the peer, in order with the other short
  // messages from here, with no Receive posted.
  static constexpr size_t kShortBytes = 1064;
  virtual absl::Status SendShort(int peer, Tag tag, ConstBytes data) = 0;
  struct ShortMessage {
    ShortMessage() {}  // leaves `data` as it is: most messages are much shorter
    int peer = kNoRank;
    Tag tag;
    uint32_t bytes = 0;
    alignas(8) std::byte data[kShortBytes];
  };
  // Takes one that has arrived; false when there is none.
  virtual bool NextShort(ShortMessage* message) = 0;

  // Progress -------------------------------------------------------------------------------------

  // Moves what can be moved without waiting. True if anything did.
  virtual bool Progress() = 0;
  // Sleeps until Progress may find something to do, Wake is called, or the time is over. Spins a
  // short while first. Thread-safe: called without the lock.
  virtual void Wait(int64_t timeout_nanos) = 0;
  virtual void Wake() = 0;  // thread-safe
  // True if a thread should sit in Wait whenever requests are open and no caller makes progress.
  // Sockets need this service, memory does not.
  virtual bool NeedsService() const = 0;

  // True if the ranks of this host outnumber the cores that they share. A waiting thread then
  // yields its core at once.
  virtual bool crowded() const { return false; }

  // Ends every open request to and from the peer with `status`, and refuses further ones.
  virtual void Fail(int peer, const absl::Status& status) = 0;
  // A link that ended by itself, reported once: the peer died, or left on purpose. Messages that
  // had arrived completely can still be received.
  struct BrokenLink {
    int peer = kNoRank;
    absl::Status status;
  };
  virtual bool NextBroken(BrokenLink* broken) = 0;
};

}  // namespace tutti::net
