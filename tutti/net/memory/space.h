#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

// Memory that ranks share, as one of them sees it, and what it knows of the others' lives: all that
// differs between ranks of one process and processes of one host. None of it is on the path of a
// small message. Not thread-safe, except that the memory it gives may be destroyed by any thread,
// and after it.
class Space {
 public:
  virtual ~Space() = default;

  virtual std::string Describe(int peer) const = 0;  // "rank 2 (pid 4711, shm)"

  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) = 0;
  virtual MemoryKey KeyOf(const void* data, size_t bytes) const = 0;
  virtual absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) = 0;

  // Regions from here on are keys of Expose, which never leave the transport.
  static constexpr uint32_t kExposed = 0xffffffff;
  // A key by which a peer can read any memory of this rank while a send lasts; region 0 where it
  // cannot.
  virtual MemoryKey Expose(const void* /*data*/) const { return {}; }

  // Something that happened to a peer. Asks the system, so it is called rarely. False when there is
  // nothing more.
  struct Event {
    int peer = -1;
    bool left = false;    // on purpose; else it died
    absl::Status status;  // what requests to it end with
  };
  virtual bool NextEvent(Event* event) = 0;
};

}  // namespace tutti::net::memory
