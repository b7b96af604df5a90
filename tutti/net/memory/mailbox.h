#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "tutti/net/memory/doorbell.h"
#include "tutti/net/memory/ring.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

// A rank's letter box in memory that its peers share: a doorbell, and for every peer a ring into
// which only that peer writes. A view; does not own the memory.
//
//   line 0            magic, version, rings, cells a ring, key, whether the owner joined barriers
//   line 1            doorbell
//   then              one RingHeader a ring
//   then              the cells of ring 0, of ring 1, ...
class Mailbox {
 public:
  // How many cells a ring has when so many ranks share memory: 1024, fewer where the mailbox would
  // become larger than 2 MiB, but at least 128.
  static uint64_t CellsFor(int ranks);
  static size_t BytesFor(int ranks, uint64_t cells);

  // Makes a mailbox of zeroed memory. REQUIRES: memory.size() == BytesFor(ranks, cells), aligned to
  // a cache line.
  static Mailbox Format(Bytes memory, int ranks, uint64_t cells);
  // One that a peer made. DATA_LOSS says what does not fit.
  static absl::StatusOr<Mailbox> Open(Bytes memory, int ranks);

  Doorbell& doorbell() const { return *doorbell_; }
  RingView ring(int writer) const;
  // True if senders on this mailbox may leave out the fence (see Doorbell).
  bool joined_barriers() const { return joined_barriers_; }

 private:
  Doorbell* doorbell_ = nullptr;
  std::byte* rings_ = nullptr;
  int ranks_ = 0;
  uint64_t cells_ = 0;
  uint64_t key_ = 0;
  bool joined_barriers_ = false;
};

}  // namespace tutti::net::memory
