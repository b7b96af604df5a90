#pragma once

#include "absl/status/status.h"
#include "tutti/net/message/receiver.h"
#include "tutti/net/message/sender.h"
#include "tutti/net/message/stash.h"
#include "tutti/net/message/wire.h"

// The message engine: implements Send and Receive once for all transports. A transport moves bytes:
// it carries the engine's messages through its Wire, and passes what arrives to the engine. It does
// no matching of tags and has no windows.
//
// Matching. A message and a Receive meet under their tag, in the order in which either was given,
// whichever comes first. A Receive that comes first is posted; a message that comes first is kept,
// or only its offer is.
//
// Short ones go at once. Up to Limits::eager_bytes a message is sent without asking: one way, one
// copy more if nobody waits for it. So that a rank that runs ahead cannot fill its peer, both ends
// count such messages (tutti/net/message/eager_window.h): past the window they are offered like
// long ones. What a peer makes this rank keep, copies and offers, is bounded by Limits::kept_bytes;
// a peer that keeps to the window never comes near it, and one that does not loses its link.
//
// Long ones wait at their sender, and come in one of three ways:
//
//   fetched       offer with a key ->                   the receiver copies the bytes from the
//                 <- fetched                            sender's memory
//   sent          offer ->                              the receiver cannot reach them, and says
//                 <- invitation                         where they are to go
//                 bytes ->
//   sent early    <- invitation                         a Receive of a long message that is posted
//                 bytes ->                              first invites it: no round trip is paid
//
// The first needs memory that both can reach, the third is for wires on which a round trip is dear
// (Limits::invites_early). With early invitations both may speak at once: the sender, not knowing
// of the invitation, has sent its offer, and its bytes, on another stream, may overtake it. They
// say that an offer was sent, and an offer whose message has ended already is expected and dropped.
//
// Lengths. Send and Receive must agree about the length. Where they do not, both end with an error
// that names both lengths, and the link goes on: the receiver sees it in the message or the offer
// and tells the sender by an invitation to receive 0; a sender sees it in an early invitation and
// tells the receiver by SendDiffers. Only of a short message the sender has heard the end already.
//
// The end. Close ends every request that is open, once. What had come whole before can still be
// received (Receiver::TakeKept), until the transport drops it.
//
// Everything that comes from the peer is checked against what is open; an INVALID_ARGUMENT means
// that the peer broke these rules, and its link is to be ended.
namespace tutti::net::message {

// All messages between this rank and one peer. Not thread-safe.
struct Engine {
  Engine(Wire* wire, Stash* stash, const Limits& limits)
      : sender(wire, limits), receiver(wire, stash, limits) {}

  bool HasOpen() const { return sender.HasOpen() || receiver.HasOpen(); }
  // Ends all requests. What has come whole stays, to be taken.
  void Close(const absl::Status& status) {
    sender.Close(status);
    receiver.Close(status);
  }

  Sender sender;
  Receiver receiver;
};

}  // namespace tutti::net::message
