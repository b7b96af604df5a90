#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "tutti/net/transport.h"

namespace tutti::net::memory {

// Copies of small messages that came before their Receive. A rank that is one operation ahead of
// its peer sends such messages all the time, so buffers are kept and used again.
class Stash {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  // What copies of all peers may take together.
  static constexpr size_t kMostBytes = 64 << 20;

  // A copy of the payload, or null if the stash is full.
  Buffer Keep(ConstBytes payload);
  // Takes a buffer back whose copy was `bytes` long.
  void Release(Buffer buffer, size_t bytes);

 private:
  static constexpr size_t kClasses = 11;  // 64 B, 128 B, ... 64 KB: what a header's length can say
  static constexpr size_t kKept = 64;     // free buffers of a class
  static size_t ClassOf(size_t bytes);

  size_t used_ = 0;
  std::array<std::vector<Buffer>, kClasses> free_;
};

}  // namespace tutti::net::memory
