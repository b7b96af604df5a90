#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tutti/net/memory/link.h"
#include "tutti/net/memory/slot_table.h"
#include "tutti/net/memory/space.h"

namespace tutti::net::memory {

// The sending half of a memory transport. Small messages are copied into the peer's ring. Of a
// large one, or where this rank is too far ahead, only an offer goes there:
//
//   bytes the peer can reach     offer (with their key) -> ; <- ack, once the peer has read them
//   other bytes                  offer -> ; <- grant; then, as long as there are free slots in the
//                                staging memory, copy a piece into one, piece -> ; <- taken
//
// What comes from the peer is checked; a status that is not OK ends the link.
class Sender {
 public:
  explicit Sender(Space* space) : space_(space) {}

  void Send(Link& link, Tag tag, ConstBytes data, Request* request) {
    if (data.empty() || (data.size() <= link.eager_bytes() && link.ahead.TrySend(data.size()))) {
      return link.Send(CellKind::kEager, tag, data, request);
    }
    SendOffer(link, tag, data, request);
  }

  absl::Status OnGrant(Link& link, const Grant& grant);
  absl::Status OnTaken(Link& link, const Taken& taken);
  absl::Status OnAck(Link& link, const Ack& ack);
  absl::Status OnRead(Link& link, const Read& read);

  // Copies pieces of granted messages into free slots. True if it did.
  bool Stream(Link& link);

  bool HasOpen(int peer) const;
  void Drop(Link& link, const absl::Status& status);

 private:
  struct Pending {
    int peer;
    Tag tag;
    ConstBytes data;
    Request* request;
    bool staged;           // waits for a grant, not for an ack
    uint64_t receive = 0;  // 0: not granted
    size_t sent = 0;
  };
  void SendOffer(Link& link, Tag tag, ConstBytes data, Request* request);

  Space* space_;
  SlotTable<Pending> pending_;
};

}  // namespace tutti::net::memory
