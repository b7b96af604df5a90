#include "tutti/runtime/executor/step_trace.h"

#include <algorithm>

#include "tutti/compile/memory_peak.h"
#include "tutti/device/device.h"
#include "tutti/graph/op_def.h"

namespace tutti {

void AppendRecords(const StepPlan& plan, std::span<const NodeTiming> timings,
                   std::vector<NodeRecord>& records) {
  for (const NodeTiming& timing : timings) {
    const PlanNode& node = plan.nodes[timing.node];
    int64_t bytes = 0;
    for (const uint32_t s : node.outputs) {
      const PlanValue& value = plan.values[s];
      if (value.type.shape.IsFullyKnown()) {
        bytes += int64_t(value.layout.Bytes(value.type.dtype, value.type.shape));
      }
    }
    records.push_back(
        {node.node->name(), node.node->op(), plan.device->name(), timing.start_nanos,
         timing.end_nanos, bytes,
         node.node->def().transfer ? node.node->attr<std::string>("key") : std::string()});
  }
}

PeakRecord RecordPeak(const StepPlan& plan) {
  const MemoryPeak peak = PeakOf(plan);
  PeakRecord record = {.device = plan.device->name()};
  if (peak.node != nullptr) record.node = peak.node->name();
  for (const LiveBytes& live : peak.live) {
    record.values.push_back(
        {live.node->name() + (live.scratch ? " (scratch)" : ""), int64_t(live.bytes)});
  }
  return record;
}

void SortFromStart(int64_t start_nanos, std::vector<NodeRecord>& records) {
  for (NodeRecord& record : records) {
    record.start_nanos -= start_nanos;
    record.end_nanos -= start_nanos;
  }
  std::stable_sort(records.begin(), records.end(), [](const NodeRecord& a, const NodeRecord& b) {
    return a.start_nanos < b.start_nanos;
  });
}

}  // namespace tutti
