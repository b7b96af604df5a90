#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::net::message {

// Memory that peers may name. Whoever reads from it or writes to it on a peer's behalf holds a
// reference, so memory that Allocate made stays until the last has let go.
struct Region {
  Region(uint32_t number, Bytes bytes, size_t mapped)
      : number(number), bytes(bytes), mapped(mapped) {}
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const uint32_t number;
  const Bytes bytes;
  const size_t mapped;  // by Allocate, from bytes.data(); 0: the memory is the caller's
};

// All registered memory of a transport. Thread-safe: memory may be given back from any thread.
class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes);
  std::unique_ptr<RegisteredMemory> Register(Bytes bytes);

  // The key of [data, data + bytes) if Allocate made it; region 0 otherwise.
  MemoryKey KeyOf(const void* data, size_t bytes) const;
  // The region that holds [key, key + bytes), or INVALID_ARGUMENT that says what there is.
  absl::StatusOr<std::shared_ptr<Region>> Find(MemoryKey key, uint64_t bytes) const;

  // Called with memory of the caller's that is given back while somebody holds a reference: it must
  // not be touched any more. Null: nobody cares.
  void OnWithdrawn(std::function<void(const Region&)> callback);

 private:
  class Memory;

  std::unique_ptr<RegisteredMemory> Add(Bytes bytes, size_t mapped);
  void Withdraw(std::shared_ptr<Region> region);

  mutable std::mutex mutex_;
  uint32_t last_number_ = 0;
  std::map<uint32_t, std::shared_ptr<Region>> by_number_;
  std::map<const std::byte*, std::shared_ptr<Region>> by_address_;  // of Allocate only
  std::function<void(const Region&)> withdrawn_;
};

}  // namespace tutti::net::message
