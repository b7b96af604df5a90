#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tutti/net/message/fifo.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

class Link;

// Large copies between ranks' memory, done a slice at a time, so that no call of Progress takes
// long.
class Copies {
 public:
  // What one call of Progress copies, about 30 us of memory bandwidth.
  static constexpr size_t kSliceBytes = 256 << 10;

  struct Copy {
    Link* link;
    const std::byte* from;
    std::byte* to;  // null: the bytes are handed to request->Take
    size_t bytes;
    Request* request;
    Tag tag = {};
    uint64_t ack = 0;  // the peer's send of that tag that is over then; 0: none
    size_t done = 0;
  };
  void Add(const Copy& copy) { copies_.push_back(copy); }
  bool empty() const { return copies_.empty(); }

  // Copies up to `budget` bytes, and ends what is complete.
  void Advance(size_t budget);
  // Ends all copies from and to the link's peer.
  void Drop(const Link& link, const absl::Status& status);

 private:
  message::Fifo<Copy> copies_;
};

// Hands over one piece of a message.
void Deliver(const std::byte* from, std::byte* to, size_t at, size_t bytes, Request* request);

}  // namespace tutti::net::memory
