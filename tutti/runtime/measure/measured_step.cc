#include "tutti/runtime/measure/measured_step.h"

#include <algorithm>

namespace tutti {
namespace {

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void MeasuredStep::Add(const StepTrace* trace, double seconds) {
  std::lock_guard lock(mutex_);
  if (runs_.fetch_add(1, std::memory_order_relaxed) == 0) return;
  steps_.push_back(seconds);
  if (!traced_) return;
  std::map<std::string, double> sums;  // a node of a loop's body runs several times
  for (const NodeRecord& node : trace->nodes) {
    if (!node.transfer.empty()) continue;
    sums[node.name] += double(node.end_nanos - node.start_nanos) * 1e-9;
  }
  for (const auto& [name, sum] : sums) nodes_[name].push_back(sum);
}

placement::MeasuredSeconds MeasuredStep::NodeSeconds() const {
  std::lock_guard lock(mutex_);
  placement::MeasuredSeconds seconds;
  for (const auto& [name, values] : nodes_) seconds.emplace(name, MedianOf(values));
  return seconds;
}

double MeasuredStep::StepSeconds() const {
  std::lock_guard lock(mutex_);
  return steps_.empty() ? -1 : MedianOf(steps_);
}

}  // namespace tutti
