#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/eager_window.h"
#include "tutti/net/memory/mailbox.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

// What goes to one peer and comes from it. Messages go out in the order in which they were given:
// straight into the peer's ring, or through a queue while that is full.
class Link {
 public:
  // The peer's mailbox, in which this rank writes ring `writer`; and the ring of the own mailbox
  // into which the peer writes. `window`: how far either may be ahead of the other.
  Link(int peer, const Mailbox& theirs, int writer, const RingView& from_peer, uint64_t window);

  int peer() const { return peer_; }
  // The longest message that is copied into the ring.
  size_t eager_bytes() const { return eager_bytes_; }

  // Sends a message whose payload the caller keeps until request->Done (now, or in Flush).
  void Send(CellKind kind, Tag tag, ConstBytes payload, Request* request) {
    if (queue_.empty() && Push(kind, tag, payload)) return request->Done(absl::OkStatus());
    Queue(kind, tag, payload, request);
  }
  // Sends one of up to Transport::kShortBytes, which is copied. False if it is a short message, and
  // too many of these are queued already.
  bool SendCopy(CellKind kind, Tag tag, ConstBytes payload) {
    if (queue_.empty() && Push(kind, tag, payload)) return true;
    return QueueCopy(kind, tag, payload);
  }
  template <typename T>
  bool SendStruct(CellKind kind, const T& value) {
    return SendCopy(kind, Tag{}, std::as_bytes(std::span(&value, 1)));
  }

  // Moves what is queued into the ring. True if anything moved.
  bool Flush();
  bool queue_empty() const { return queue_.empty(); }
  // Ends what is queued; nothing is sent or read any more.
  void End(const absl::Status& status);
  // OK until then.
  const absl::Status& status() const { return status_; }

  // True if Progress may find something to do here. Thread-safe.
  bool HasNews() const {
    if (over_.load(std::memory_order_relaxed)) return false;
    return in.Ready() || (stalled_.load(std::memory_order_relaxed) && out_.RoomChanged());
  }
  // Not OK: nothing more can go out.
  absl::Status Health() const;
  void WakePeer() { RingIfSleeping(*bell_, fence_); }

  RingConsumer in;
  EagerSender ahead;                          // of the peer
  EagerReceiver taken;                        // from it
  absl::Status left = absl::OkStatus();       // not OK: the peer left on purpose
  std::unique_ptr<RegisteredMemory> staging;  // for messages the peer cannot reach in place
  std::array<bool, kPieceSlots> slot_used{};  // of the staging memory
  std::deque<uint64_t> streaming;             // sends that the peer granted

 private:
  struct Queued {
    CellKind kind;
    Tag tag;
    ConstBytes payload;
    Request* request;  // null: the payload is in `copy`
    std::vector<std::byte> copy;
  };

  bool Push(CellKind kind, Tag tag, ConstBytes payload) {
    CellHeader* cell = out_.Reserve(payload.size());
    if (cell == nullptr) return false;
    cell->operation = tag.operation;
    cell->index = tag.index;
    cell->bytes = static_cast<uint16_t>(payload.size());
    cell->kind = kind;
    if (!payload.empty()) std::memcpy(cell + 1, payload.data(), payload.size());
    out_.Publish(cell, payload.size());
    RingIfSleeping(*bell_, fence_);
    return true;
  }
  void Queue(CellKind kind, Tag tag, ConstBytes payload, Request* request);
  bool QueueCopy(CellKind kind, Tag tag, ConstBytes payload);

  int peer_;
  RingProducer out_;
  Doorbell* bell_;
  bool fence_;
  size_t eager_bytes_;
  std::deque<Queued> queue_;
  size_t shorts_queued_ = 0;
  absl::Status status_;
  bool overflown_ = false;
  std::atomic<bool> over_{false};     // status_ is not OK
  std::atomic<bool> stalled_{false};  // the queue is not empty
};

}  // namespace tutti::net::memory
