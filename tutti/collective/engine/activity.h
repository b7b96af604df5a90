#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/collective/communicator.h"

namespace tutti::collective {

// Counts what a rank's operations took: CommunicatorStats, as it comes about. Under the engine's
// lock.
class Activity {
 public:
  explicit Activity(int world) { stats_.waited_nanos.resize(world); }

  void CountStart(int64_t now, int64_t bytes);
  void CountEnd();
  // An operation that was called at `start_nanos` has waited for `peer`, the last to call it.
  void CountWait(int64_t start_nanos, int peer);
  // A caller that polls has nothing else to do, or has again.
  void SetIdle(bool idle);

  size_t started() const { return started_; }  // operations that are open and called
  CommunicatorStats stats() const;

 private:
  CommunicatorStats stats_;
  size_t started_ = 0;
  int64_t active_since_ = 0;  // while there are any
  int idle_ = 0;              // callers that poll and have nothing else to do
  int64_t idle_since_ = 0;    // while there are any
  int64_t waited_until_ = 0;  // no time before it is counted as waiting again
};

}  // namespace tutti::collective
