#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::net::message {

// Memory for copies of messages that came before their Receive. A rank that is one operation ahead
// of its peer sends such messages all the time, so buffers are kept and used again. One serves all
// links of a transport. Not thread-safe.
class Stash {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;
  static constexpr size_t kMostBytes = 64 << 10;  // of one message

  // Room for so many bytes. REQUIRES: bytes <= kMostBytes.
  Buffer Take(size_t bytes);
  // Takes a buffer back that was given for `bytes`.
  void Release(Buffer buffer, size_t bytes);

 private:
  static constexpr size_t kClasses = 11;  // 64 B, 128 B, ... 64 KB
  static constexpr size_t kKept = 64;     // free buffers of a class
  static size_t ClassOf(size_t bytes);

  std::array<std::vector<Buffer>, kClasses> free_;
};

}  // namespace tutti::net::message
