#pragma once

#include <cstdint>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"

namespace tutti::net {

// Bounds the lines that refused connections cost: anybody who reaches a port can cause them. Not
// thread-safe.
class RefusalLog {
 public:
  // May one more be logged? What was left out in the meantime is counted, and told in a line when
  // there is room again.
  bool HasRoom() {
    const int64_t now = NowNanos();
    if (window_ == 0 || now - window_ > kWindowNanos) {
      if (left_out_ > 0) {
        Log(LogLevel::kWarning, "{} more connections were refused without a line here", left_out_);
      }
      window_ = now;
      lines_ = left_out_ = 0;
    }
    if (++lines_ <= kLinesPerWindow) return true;
    ++left_out_;
    return false;
  }

 private:
  static constexpr int64_t kWindowNanos = 10'000'000'000;
  static constexpr int kLinesPerWindow = 20;

  int64_t window_ = 0;  // its begin
  int lines_ = 0;
  int left_out_ = 0;
};

}  // namespace tutti::net
