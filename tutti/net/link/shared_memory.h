#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "tutti/net/shm/shared_pages.h"
#include "tutti/net/transport.h"

namespace tutti::net {

// Memory that other processes of this host can be shown: a payload of a message that lies here is
// read in place by its receiver. Blocks come back when their last owner goes, and are used again;
// sizes are rounded up to four steps per power of two, so a steady program allocates nothing after
// its first steps. Thread-safe; outlives its blocks by shared ownership.
class SharedMemory {
 public:
  // Smaller payloads travel inside the message, so nothing is won by allocating them here.
  static constexpr size_t kLeastBytes = size_t{32} << 10;

  // Keeps at most `idle_bytes` of blocks that nobody uses.
  explicit SharedMemory(size_t idle_bytes = size_t{512} << 20);
  ~SharedMemory();

  // A block, 64-byte aligned, not initialised. RESOURCE_EXHAUSTED where there is no more.
  struct Block {
    Bytes bytes;
    std::shared_ptr<void> owner;
  };
  absl::StatusOr<Block> Allocate(size_t bytes);

  // A piece of memory as peers name it.
  struct Region {
    uint32_t id = 0;
    Bytes bytes;
    shm::FileDescriptor file;
    shm::SharedPages pages;
  };
  struct Place {
    std::shared_ptr<const Region> region;
    uint64_t offset = 0;
  };
  // Where [data, data + bytes) lies, if it does in memory of this.
  std::optional<Place> Find(const void* data, size_t bytes) const;

  struct Usage {
    uint64_t in_use = 0;
    uint64_t idle = 0;
    uint64_t regions = 0;
  };
  Usage usage() const;
  void Trim();  // gives back what lies idle

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tutti::net
