#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tutti/net/memory/cell.h"

namespace tutti::net::memory {

// The shared part of a ring beside its cells: up to where the consumer has read. The producer looks
// at it only when it runs out of room.
struct alignas(kCellBytes) RingHeader {
  std::atomic<uint64_t> consumed;
};
static_assert(sizeof(RingHeader) == kCellBytes);

// A ring as both ends know it. All of it was checked when the mailbox was opened; what lies in
// shared memory is never asked for these values again.
struct RingView {
  RingHeader* header = nullptr;
  std::byte* cells = nullptr;
  uint64_t count = 0;  // of cells; a power of two
  uint64_t key = 0;
};

// The writing end. A message of up to an eighth of the ring and one cell always gets room sooner or
// later.
class RingProducer {
 public:
  RingProducer() = default;
  explicit RingProducer(const RingView& view) : view_(view) {}

  // The longest payload that Reserve may be asked for.
  size_t max_payload() const { return view_.count / 8 * kCellBytes + kInlineBytes; }

  // Where a message with that payload goes, or null while the ring is full. The header's fields and
  // the payload behind it are to be filled in; Publish hands them over.
  CellHeader* Reserve(size_t payload_bytes) {
    const uint64_t need = CellsFor(payload_bytes);
    const uint64_t at = produced_ & (view_.count - 1);
    const uint64_t to_end = view_.count - at;
    const uint64_t total = need <= to_end ? need : to_end + need;
    if (produced_ + total - consumed_ > view_.count && !FindRoom(total)) return nullptr;
    if (need > to_end) Pad(to_end);
    return CellAt(produced_);
  }

  void Publish(CellHeader* cell, size_t payload_bytes) {
    std::atomic_ref<uint64_t>(cell->sequence)
        .store(view_.key + produced_, std::memory_order_release);
    produced_ += CellsFor(payload_bytes);
  }

  // True if there may be more room than when Reserve failed. Any thread may ask.
  bool RoomChanged() const {
    return view_.header->consumed.load(std::memory_order_relaxed) !=
           seen_.load(std::memory_order_relaxed);
  }
  // The consumer's count went backwards or beyond what was written.
  bool corrupt() const { return corrupt_; }

 private:
  CellHeader* CellAt(uint64_t position) const {
    return reinterpret_cast<CellHeader*>(view_.cells + (position & (view_.count - 1)) * kCellBytes);
  }
  bool FindRoom(uint64_t total);
  void Pad(uint64_t cells);

  RingView view_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  std::atomic<uint64_t> seen_{0};  // consumed_, for RoomChanged
  bool corrupt_ = false;
};

// The reading end.
class RingConsumer {
 public:
  struct Message {
    CellHeader header;         // a copy: the producer can no longer change it
    const std::byte* payload;  // header.bytes bytes, inside the ring
  };
  enum class Found : uint8_t { kNothing, kMessage, kCorrupt };

  RingConsumer() = default;
  explicit RingConsumer(const RingView& view) : view_(view) {}

  // The oldest message that was not popped. Its payload stays until Pop.
  Found Peek(Message* message);

  // Gives the message's cells back. True if the producer was told of room, for which it may wait.
  bool Pop(const Message& message) { return Skip(CellsFor(message.header.bytes)); }

  // True if there is a message. Any thread may ask; while another one reads messages the answer may
  // be out of date.
  bool Ready() const;

 private:
  CellHeader* CellAt(uint64_t position) const {
    return reinterpret_cast<CellHeader*>(view_.cells + (position & (view_.count - 1)) * kCellBytes);
  }
  bool Skip(uint64_t cells);

  RingView view_;
  std::atomic<uint64_t> position_{0};  // written by the reader alone
  uint64_t told_ = 0;
};

}  // namespace tutti::net::memory
