#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/net/message/eager_window.h"
#include "tutti/net/message/stash.h"
#include "tutti/net/message/tag_table.h"
#include "tutti/net/message/wire.h"
#include "tutti/net/transport.h"

namespace tutti::net::message {

// A Receive (or Get) that has not ended.
struct OpenReceive {
  Tag tag;
  bool tagged = true;                // false: only its id names it
  std::byte* destination = nullptr;  // null: the bytes are handed to request->Take
  uint64_t bytes = 0;
  Request* request = nullptr;
  uint64_t id = 0;          // under which its bytes come; 0: the peer knows none
  bool offered = false;     // its message waits at the sender
  bool begun = false;       // some of its bytes have come
  uint64_t received = 0;    // bytes
  std::vector<bool> parts;  // that have come, where the wire brings them in any order
};

// The receiving half of the engine (tutti/net/message/engine.h): messages from one peer, those that
// this rank waits for, and how they find each other. What comes from the peer is checked against
// what is open; an error means that the peer breaks the rules, and the link is to be ended. Not
// thread-safe.
class Receiver {
 public:
  Receiver(Wire* wire, Stash* stash, const Limits& limits);
  ~Receiver();

  // The caller's side: Transport::Receive. An error ends the link.
  absl::Status Receive(Tag tag, std::byte* destination, size_t bytes, Request* request);
  // After the link has ended: completes a Receive from what came whole before; false if there is
  // nothing for it.
  bool TakeKept(Tag tag, std::byte* destination, size_t bytes, Request* request);
  // An open receive without a tag, to whose id the wire delivers.
  OpenReceive* Expect(std::byte* destination, size_t bytes, Request* request);

  // A whole message that lies at `payload`, for the length of the call.
  absl::Status OnEager(Tag tag, ConstBytes payload);
  // The same in two steps, for wires that can read a payload to where it belongs. `*target` stays
  // null where the wire is to read it to a place of its own.
  struct Landing {
    OpenReceive* receive = nullptr;  // that it fills
    Stash::Buffer kept;              // or where it is kept
  };
  absl::Status BeginEager(Tag tag, size_t bytes, Landing* landing, std::byte** target);
  absl::Status EndEager(Tag tag, size_t bytes, Landing* landing, const std::byte* payload);
  // Ends the request of a landing whose message does not come any more.
  void Abandon(Landing* landing, const absl::Status& status);

  absl::Status OnOffer(Tag tag, const Offer& offer);
  // The message for the receive has another length.
  absl::Status OnDiffers(uint64_t id, uint64_t bytes);
  // The receive to which bytes come; null if there is none.
  OpenReceive* Find(uint64_t id);
  // All its bytes have come. `offered`: an offer of the message was sent, perhaps not read yet.
  absl::Status Complete(OpenReceive* receive, bool offered);
  // Ends one that will get no bytes.
  absl::Status EndEarly(OpenReceive* receive, const absl::Status& status);

  // What else the peer makes this rank keep, such as short messages: counted against kept_bytes.
  absl::Status Keep(size_t bytes);
  void Release(size_t bytes) { kept_bytes_ -= EagerCost(bytes); }

  bool HasOpen() const { return !posted_.empty() || !by_id_.empty(); }
  // Ends the open receives. What has come whole stays, to be taken.
  void Close(const absl::Status& status);
  void DropKept();

 private:
  // What came before its Receive: a copy, or the offer of one that waits at its sender.
  struct Arrived {
    Stash::Buffer copy;  // null: offered
    Offer offer;         // offer.bytes is the length of either
  };

  OpenReceive* Post(const OpenReceive& receive);
  void Invite(OpenReceive* receive, uint64_t send);
  absl::Status Accept(const OpenReceive& receive, const Offer& offer);
  void Deliver(const OpenReceive& receive, const std::byte* payload);
  void NoteTaken(size_t bytes);
  void Unpost(OpenReceive* receive);
  Request* Remove(OpenReceive* receive);
  void Recycle(OpenReceive* receive);
  absl::Status Differing(Tag tag, uint64_t expected, uint64_t got) const;

  Wire* const wire_;
  Stash* const stash_;
  const Limits limits_;
  EagerReceiver taken_;
  uint64_t last_id_ = 0;
  size_t kept_bytes_ = 0;
  TagTable<OpenReceive*> posted_;  // that nothing has come for
  absl::flat_hash_map<uint64_t, OpenReceive*> by_id_;
  TagTable<Arrived> arrived_;
  TagTable<uint64_t> late_offers_;  // ids of receives that ended before the offer was read
  std::vector<std::unique_ptr<OpenReceive>> all_;
  std::vector<OpenReceive*> free_;
};

}  // namespace tutti::net::message
