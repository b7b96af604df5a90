#pragma once

#include <string>

#include "tutti/train/strategies/peers.h"

namespace tutti {

// Who asked all workers to stop, and by which signal.
struct JointStop {
  int worker = 0;
  int signal = 0;
};

// After a step in which some worker was asked to stop: all workers learn whom it was (of several,
// the first), and make the request their own, so that they end in the same way. All workers call
// it. Throws Error.
JointStop AgreeOnStop(Peers& peers);

// "signal 15 (Terminated) to worker 1"
std::string DescribeStop(const JointStop& stop);

}  // namespace tutti
