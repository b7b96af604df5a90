#pragma once

#include <string>

#include "tutti/train/strategies/peers.h"

namespace tutti {

// Who asked all workers to stop, and by which signal, or why.
struct JointStop {
  int worker = 0;
  int signal = 0;           // 0: a hook asked
  std::string reason = {};  // of a hook
};

// After a step in which some worker was asked to stop: all workers learn whom it was (of several,
// the first; signals count before hooks), and make a signal their own, so that they end in the same
// way. `reason` is that of this worker's hooks. All workers call it. Throws Error.
JointStop AgreeOnStop(Peers& peers, const std::string& reason = "");

// "signal 15 (Terminated) to worker 1", or "a hook of worker 0: REASON"
std::string DescribeStop(const JointStop& stop);

}  // namespace tutti
