#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/memory/copies.h"
#include "tutti/net/memory/mailbox.h"
#include "tutti/net/memory/space.h"
#include "tutti/net/memory/staging.h"
#include "tutti/net/message/engine.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

// What goes to one peer and comes from it. Messages go out in the order in which they were given:
// straight into the peer's ring, or through a queue while that is full. Of a large one the offer
// brings a key, by which the peer copies it; where the peer can reach the bytes by no key they go
// through staging memory.
class Link final : public message::Wire {
 public:
  // What all links of a transport work with.
  struct Shared {
    int rank;
    Space* space;
    Copies* copies;
    message::Stash* stash;
    size_t links;
  };
  // The peer's mailbox, in which this rank writes ring `writer`; and the ring of the own mailbox
  // into which the peer writes.
  Link(const Shared& shared, int peer, const Mailbox& theirs, int writer,
       const RingView& from_peer);

  int peer() const { return peer_; }
  message::Engine& engine() { return engine_; }

  std::string Describe() const override { return shared_.space->Describe(peer_); }
  void SendEager(Tag tag, ConstBytes data, Request* request) override {
    Send(CellKind::kEager, tag, data, request);
  }
  void SendOffer(Tag tag, const message::Offer& offer) override;
  void SendInvitation(Tag tag, const message::Invitation& invitation) override;
  void SendTaken(uint64_t taken) override { SendStruct(CellKind::kRead, Read{.taken = taken}); }
  absl::Status SendBytes(const message::Invitation& invitation, ConstBytes data, bool offered,
                         Request* request) override;
  MemoryKey KeyFor(ConstBytes data) override;
  absl::Status Fetch(Tag tag, const message::Offer& offer, std::byte* destination,
                     Request* request) override;

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
  bool SendStruct(CellKind kind, const T& value, Tag tag = {}) {
    return SendCopy(kind, tag, std::as_bytes(std::span(&value, 1)));
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
  absl::Status left = absl::OkStatus();  // not OK: the peer left on purpose
  Staging staging;                       // for messages the peer cannot reach in place

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

  const Shared shared_;
  const int peer_;
  RingProducer out_;
  Doorbell* bell_;
  bool fence_;
  std::deque<Queued> queue_;
  size_t shorts_queued_ = 0;
  absl::Status status_;
  bool overflown_ = false;
  std::atomic<bool> over_{false};     // status_ is not OK
  std::atomic<bool> stalled_{false};  // the queue is not empty
  message::Engine engine_;
};

}  // namespace tutti::net::memory
