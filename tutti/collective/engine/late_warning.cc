#include "tutti/collective/engine/late_warning.h"

#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/log.h"

namespace tutti::collective {

std::vector<int> LateWarning::LateRanks(const OpenOperation& operation) const {
  std::vector<int> ranks;
  const uint64_t sequence = operation.identity().world_sequence;
  if (control_ != nullptr && sequence > 0) {
    const std::vector<uint64_t> progress = control_->Progress();
    for (size_t r = 0; r < progress.size(); ++r) {
      if (progress[r] < sequence) ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks.empty() ? operation.WaitsFor() : ranks;
}

void LateWarning::Look(OpenOperation& operation, int64_t now) const {
  if (!operation.started() || late_nanos_ <= 0) return;
  if (operation.seen_nanos == 0) operation.seen_nanos = operation.late_nanos = now;
  if (now - operation.late_nanos < late_nanos_) return;
  operation.late_nanos = now;
  const std::vector<int> ranks = LateRanks(operation);
  std::string names;
  for (int rank : ranks) {
    names += (names.empty() ? "" : ", ") + transport_->Describe(rank);
  }
  // With a control plane, who died or left is known before anybody is late.
  const std::string_view alive = control_ == nullptr ? ""
                                 : ranks.size() == 1 ? "; it is alive"
                                                     : "; they are alive";
  Log(LogLevel::kWarning, "{} has waited {:.0f} s for {}{}", operation.Name(),
      static_cast<double>(now - operation.seen_nanos) / 1e9, names.empty() ? "its own work" : names,
      alive);
}

}  // namespace tutti::collective
