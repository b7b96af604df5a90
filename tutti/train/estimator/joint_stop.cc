#include "tutti/train/estimator/joint_stop.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "tutti/train/stop.h"

namespace tutti {

JointStop AgreeOnStop(Peers& peers) {
  const auto signals = peers.Gather("stop", fmt::format("{}", StopSignal()));
  JointStop stop;
  for (size_t r = 0; r < signals.size() && stop.signal == 0; ++r) {
    stop.worker = int(r);
    std::from_chars(signals[r].data(), signals[r].data() + signals[r].size(), stop.signal);
  }
  if (!StopRequested()) RequestStop(stop.signal);
  return stop;
}

std::string DescribeStop(const JointStop& stop) {
  const char* name = ::strsignal(stop.signal);
  return fmt::format("signal {} ({}) to worker {}", stop.signal, name, stop.worker);
}

}  // namespace tutti
