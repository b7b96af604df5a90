#include "tutti/net/memory/ring.h"

// One producer, one consumer, and as few cache lines between them as can be: a message of up to 40
// bytes is one line that goes from one core to the other. The consumer knows that it is there by
// the sequence in the line itself; the producer knows that there is room from what the consumer
// told it some time ago, which it renews only when it runs out.
//
// The consumer tells a quarter of the ring at a time. A message takes at most an eighth of the ring
// (and one cell), with the padding before the end of the ring a quarter; three quarters are known
// to be free once the consumer has read everything: so nobody waits for room that is there.
namespace tutti::net::memory {

bool RingProducer::FindRoom(uint64_t total) {
  const uint64_t consumed = view_.header->consumed.load(std::memory_order_acquire);
  if (consumed < consumed_ || consumed > produced_) {
    corrupt_ = true;
    return false;
  }
  consumed_ = consumed;
  seen_.store(consumed, std::memory_order_relaxed);
  return produced_ + total - consumed_ <= view_.count;
}

void RingProducer::Pad(uint64_t cells) {
  CellHeader* cell = CellAt(produced_);
  cell->kind = CellKind::kPad;
  cell->bytes = 0;
  std::atomic_ref<uint64_t>(cell->sequence).store(view_.key + produced_, std::memory_order_release);
  produced_ += cells;
}

RingConsumer::Found RingConsumer::Peek(Message* message) {
  for (;;) {
    const uint64_t position = position_.load(std::memory_order_relaxed);
    CellHeader* cell = CellAt(position);
    const uint64_t sequence =
        std::atomic_ref<uint64_t>(cell->sequence).load(std::memory_order_acquire);
    if (sequence != view_.key + position) return Found::kNothing;
    message->header = *cell;
    message->payload = reinterpret_cast<const std::byte*>(cell + 1);
    const uint64_t at = position & (view_.count - 1);
    if (message->header.kind == CellKind::kPad) {
      // The producer pads before the end only. (Padding a whole ring could go on for ever.)
      if (at == 0) return Found::kCorrupt;
      Skip(view_.count - at);
      continue;
    }
    const bool inside = CellsFor(message->header.bytes) <= view_.count - at;
    return inside ? Found::kMessage : Found::kCorrupt;
  }
}

bool RingConsumer::Skip(uint64_t cells) {
  const uint64_t position = position_.load(std::memory_order_relaxed) + cells;
  position_.store(position, std::memory_order_relaxed);
  if (position - told_ < view_.count / 4) return false;
  told_ = position;
  view_.header->consumed.store(position, std::memory_order_release);
  return true;
}

// While another thread reads on, this cell may already be given back and be filled with payload: a
// race that the language forbids and that can do no more here than answer wrongly. So the load is
// hidden from the thread sanitizer.
__attribute__((no_sanitize("thread"))) bool RingConsumer::Ready() const {
  const uint64_t position =
      __atomic_load_n(reinterpret_cast<const uint64_t*>(&position_), __ATOMIC_RELAXED);
  return __atomic_load_n(&CellAt(position)->sequence, __ATOMIC_RELAXED) == view_.key + position;
}

}  // namespace tutti::net::memory
