#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "tutti/net/memory/cell.h"
#include "tutti/net/memory/space.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

class Link;

// How bytes that a peer can reach by no key get there: the sender copies them piece by piece into
// memory that both share, and the receiver from there:
//
//   as long as there are free slots in the staging memory, copy a piece into one, piece -> ; <-
//   taken
//
// Has the pieces of one link, both ways. What comes from the peer is checked; an error ends the
// link.
class Staging {
 public:
  explicit Staging(Space* space) : space_(space) {}

  // Sends the bytes to the peer's receive. The request is this one's, also if the call fails.
  absl::Status Add(uint64_t receive, ConstBytes data, Request* request);
  // Copies pieces into free slots. True if it did.
  bool Stream(Link& link);
  absl::Status OnTaken(const Taken& taken);
  // A piece from the peer.
  absl::Status OnPiece(Link& link, const Piece& piece);

  bool empty() const { return sends_.empty(); }
  void Drop(const absl::Status& status);

 private:
  struct Sending {
    uint64_t receive;
    ConstBytes data;
    Request* request;
    size_t sent = 0;
  };

  Space* const space_;
  std::unique_ptr<RegisteredMemory> memory_;  // made when it is first needed
  std::array<bool, kPieceSlots> used_{};      // slots of it
  std::deque<Sending> sends_;
};

}  // namespace tutti::net::memory
