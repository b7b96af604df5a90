#include "tutti/net/memory/copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/net/memory/link.h"

namespace tutti::net::memory {

void Deliver(const std::byte* from, std::byte* to, size_t at, size_t bytes, Request* request) {
  if (bytes == 0) return;
  if (to == nullptr) {
    request->Take(at, ConstBytes(from, bytes));
  } else {
    std::memcpy(to + at, from, bytes);
  }
}

void Copies::Advance(size_t budget) {
  while (!copies_.empty() && budget > 0) {
    Copy& copy = copies_.front();
    // Pieces end at multiples of 64, as Take wants it; so a budget below that is rounded up.
    const size_t slice = std::min((budget + 63) / 64 * 64, copy.bytes - copy.done);
    Deliver(copy.from + copy.done, copy.to, copy.done, slice, copy.request);
    copy.done += slice;
    budget -= std::min(budget, slice);
    if (copy.done < copy.bytes) return;
    const Copy complete = copy;
    copies_.pop_front();
    if (complete.ack != 0) {
      complete.link->SendStruct(CellKind::kAck, Ack{.send = complete.ack}, complete.tag);
    }
    complete.request->Done(absl::OkStatus());
  }
}

void Copies::Drop(const Link& link, const absl::Status& status) {
  message::Fifo<Copy> copies = std::exchange(copies_, {});
  for (const Copy& copy : copies) {
    if (copy.link == &link) {
      copy.request->Done(status);
    } else {
      copies_.push_back(copy);
    }
  }
}

}  // namespace tutti::net::memory
