#include "tutti/collective/engine/activity.h"

#include <algorithm>

#include "tutti/base/clock.h"

namespace tutti::collective {

void Activity::CountStart(int64_t now, int64_t bytes) {
  if (started_++ == 0) active_since_ = now;
  ++stats_.operations;
  stats_.bytes += bytes;
}

void Activity::CountEnd() {
  if (--started_ == 0) stats_.active_nanos += NowNanos() - active_since_;
}

void Activity::CountWait(int64_t start_nanos, int peer) {
  if (idle_ == 0) return;
  const int64_t now = NowNanos();
  const int64_t from = std::max({start_nanos, idle_since_, waited_until_});
  stats_.waited_nanos[peer] += std::max<int64_t>(0, now - from);
  waited_until_ = now;
}

void Activity::SetIdle(bool idle) {
  const int64_t now = NowNanos();
  if (idle) {
    if (idle_++ == 0) idle_since_ = now;
  } else if (--idle_ == 0) {
    stats_.exposed_nanos += now - idle_since_;
  }
}

CommunicatorStats Activity::stats() const {
  CommunicatorStats stats = stats_;
  if (started_ > 0) stats.active_nanos += NowNanos() - active_since_;
  return stats;
}

}  // namespace tutti::collective
