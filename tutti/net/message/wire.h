#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tutti/net/transport.h"

namespace tutti::net::message {

// A message that waits at its sender.
struct Offer {
  uint64_t bytes = 0;
  uint64_t send = 0;  // names it in the answer; 0 on wires where the tag does that
  MemoryKey key;      // where the receiver can fetch it; region 0: it cannot
};

// The receiver's word to the sender of a message.
struct Invitation {
  uint64_t receive = 0;   // where its bytes go; 0: nowhere, the receive has ended for its length
  uint64_t bytes = 0;     // that are expected
  bool in_order = false;  // the bytes must come in order
  uint64_t send = 0;      // of the offer that it answers; 0: the first of the tag, if there is one
};

// How a transport carries what the engine says to one peer. Everything keeps its order but the
// bytes of SendBytes, and none of it waits. A transport implements it once per link.
class Wire {
 public:
  // "rank 2 (10.0.0.7:4711, tcp)"
  virtual std::string Describe() const = 0;

  // A whole message of up to Limits::eager_bytes. The request is done when `data` may change.
  virtual void SendEager(Tag tag, ConstBytes data, Request* request) = 0;
  virtual void SendOffer(Tag tag, const Offer& offer) = 0;
  virtual void SendInvitation(Tag tag, const Invitation& invitation) = 0;
  // The message for that receive has another length. Follows an early invitation only.
  virtual void SendDiffers(uint64_t /*receive*/, uint64_t /*bytes*/) {}
  // How much of the eager messages has been taken so far.
  virtual void SendTaken(uint64_t taken) = 0;
  // The bytes of a message go to where the invitation wants them. `offered`: an offer was sent. The
  // request is the wire's from here on, also if the call fails.
  virtual absl::Status SendBytes(const Invitation& invitation, ConstBytes data, bool offered,
                                 Request* request) = 0;

  // By what the peer can fetch `data` while it waits; region 0: it cannot.
  virtual MemoryKey KeyFor(ConstBytes /*data*/) { return {}; }
  // Fetches an offered message with a key, tells the peer, and ends the request, which is the
  // wire's from here on, also if the call fails.
  virtual absl::Status Fetch(Tag /*tag*/, const Offer& /*offer*/, std::byte* /*destination*/,
                             Request* request) {
    const absl::Status status =
        absl::InvalidArgumentError("offered memory on a link that cannot fetch it");
    request->Done(status);
    return status;
  }
  // A Receive waits: the end of the link must show even if nothing is sent to the peer.
  virtual void Attend() {}

 protected:
  ~Wire() = default;
};

// What the two ends of a link hold to. All ranks of a job have the same.
struct Limits {
  int rank = 0;            // this one, for messages
  size_t eager_bytes = 0;  // longer messages are offered
  // Of eager messages that were not taken: tutti/net/message/eager_window.h.
  uint64_t window = 0;
  // What a peer makes this rank keep, its messages and offers without a Receive. Past it the link
  // ends.
  size_t kept_bytes = 0;
  // A Receive of more than eager_bytes invites before it sees an offer. A tag then names one
  // message at a time: bytes and offers of a second one could overtake each other.
  bool invites_early = false;
};

}  // namespace tutti::net::message
