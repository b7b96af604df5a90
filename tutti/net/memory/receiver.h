#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tutti/net/memory/copies.h"
#include "tutti/net/memory/link.h"
#include "tutti/net/memory/slot_table.h"
#include "tutti/net/memory/space.h"
#include "tutti/net/memory/stash.h"
#include "tutti/net/memory/tag_table.h"

namespace tutti::net::memory {

// The receiving half of a memory transport: brings messages and Receives of one tag together,
// whichever comes first. Sender has the other half of the protocol. What comes from the peer is
// checked; a status that is not OK ends the link.
class Receiver {
 public:
  Receiver(Space* space, Copies* copies) : space_(space), copies_(copies) {}

  absl::Status Receive(Link& link, Tag tag, std::byte* destination, size_t bytes, Request* request);

  absl::Status OnEager(Link& link, Tag tag, ConstBytes payload);
  absl::Status OnOffer(Link& link, Tag tag, const Offer& offer);
  absl::Status OnPiece(Link& link, const Piece& piece);

  bool HasOpen(int peer) const;
  void Drop(Link& link, const absl::Status& status);

 private:
  struct Posted {
    std::byte* destination;
    size_t bytes;
    Request* request;
  };
  struct Arrived {
    Stash::Buffer copy;  // null: an offer
    Offer offer;         // offer.bytes is the length in both cases
  };
  struct Staged {
    int peer;
    Posted posted;
    size_t received = 0;
  };
  static constexpr size_t kMostOffers = 1 << 20;  // that wait for their Receive
  static void NoteTaken(Link& link, size_t bytes);
  absl::Status Accept(Link& link, Tag tag, const Posted& posted, const Offer& offer);

  Space* space_;
  Copies* copies_;
  Stash stash_;
  TagTable<Posted> posted_;
  TagTable<Arrived> arrived_;
  SlotTable<Staged> staged_;
};

}  // namespace tutti::net::memory
