#include "tutti/train/estimator/joint_stop.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "tutti/train/stop.h"

namespace tutti {

JointStop AgreeOnStop(Peers& peers, const std::string& reason) {
  const auto texts = peers.Gather("stop", fmt::format("{} {}", StopSignal(), reason));
  JointStop stop;
  for (size_t r = 0; r < texts.size(); ++r) {
    JointStop own{.worker = int(r)};
    const char* const end = texts[r].data() + texts[r].size();
    const char* rest = std::from_chars(texts[r].data(), end, own.signal).ptr;
    if (rest != end) own.reason.assign(rest + 1, end);
    const bool asked = own.signal != 0 || !own.reason.empty();
    const bool first = stop.signal == 0 && stop.reason.empty();
    if (asked && (first || (stop.signal == 0 && own.signal != 0))) stop = own;
  }
  if (stop.signal != 0 && !StopRequested()) RequestStop(stop.signal);
  return stop;
}

std::string DescribeStop(const JointStop& stop) {
  if (stop.signal == 0) return fmt::format("a hook of worker {}: {}", stop.worker, stop.reason);
  const char* name = ::strsignal(stop.signal);
  return fmt::format("signal {} ({}) to worker {}", stop.signal, name, stop.worker);
}

}  // namespace tutti
