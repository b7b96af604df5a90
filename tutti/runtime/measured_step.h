#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/placement/step_costs.h"
#include "tutti/runtime/executor/step_trace.h"

namespace tutti {

// What the first runs of an automatically placed step took. Runs are traced until there are
// kMeasuredSteps, the first of which does not count (it fills caches); then the master places once
// more with these figures in place of estimates. Thread-safe.
class MeasuredStep {
 public:
  static constexpr int kMeasuredSteps = 10;

  // `placement`: where nodes are, by name.
  explicit MeasuredStep(std::unordered_map<std::string, std::string> placement)
      : placement_(std::move(placement)) {}

  bool wants_more() const { return runs_.load(std::memory_order_relaxed) < kMeasuredSteps; }
  void Add(const StepTrace& trace, double seconds);

  // It is the second placement of a step, which is the last: runs are measured for explanations
  // only.
  void TakeOver() { taken_ = true; }
  // True for one caller, when there are enough runs.
  bool TakeTurn() { return !wants_more() && !taken_.exchange(true); }

  const std::unordered_map<std::string, std::string>& placement() const { return placement_; }
  // Medians. Of nodes that wait for others (Recv, AllReduce) nothing is told.
  placement::MeasuredSeconds NodeSeconds() const;
  double StepSeconds() const;  // negative: none was measured

 private:
  const std::unordered_map<std::string, std::string> placement_;
  std::atomic<int> runs_{0};
  std::atomic<bool> taken_{false};
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<double>> nodes_;
  std::vector<double> steps_;
};

}  // namespace tutti
