#pragma once

#include <chrono>
#include <cstdint>

namespace tutti {

// Nanoseconds of a monotonic clock; only differences mean anything.
inline int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tutti
