#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/placement/measured_costs.h"
#include "tutti/runtime/executor/step_trace.h"

namespace tutti {

// What the first runs of a step on several devices took, kMeasuredSteps of them, of which the first
// does not count (it fills caches). Runs of an automatically placed step are traced, and then the
// master places once more with these figures in place of estimates. Where scopes decide, only the
// time of the whole step is taken. Thread-safe.
class MeasuredStep {
 public:
  static constexpr int kMeasuredSteps = 10;

  // A step that scopes have placed.
  MeasuredStep() : traced_(false) {}
  // One that the cost model has placed; `placement`: where nodes are, by name.
  explicit MeasuredStep(std::unordered_map<std::string, std::string> placement)
      : traced_(true), placement_(std::move(placement)) {}

  bool traced() const { return traced_; }  // are runs to be traced?

  bool wants_more() const { return runs_.load(std::memory_order_relaxed) < kMeasuredSteps; }
  // `trace` may be null unless traced().
  void Add(const StepTrace* trace, double seconds);

  // It is the second placement of a step, which is the last: runs are measured for explanations
  // only.
  void TakeOver() { taken_ = true; }
  // True for one caller, when there are enough runs to place the step anew.
  bool TakeTurn() { return traced_ && !wants_more() && !taken_.exchange(true); }

  // Empty where scopes have placed it.
  const std::unordered_map<std::string, std::string>& placement() const { return placement_; }
  // Medians; nothing unless traced(). Of nodes that wait for others (Recv, AllReduce) nothing is
  // told.
  placement::MeasuredSeconds NodeSeconds() const;
  double StepSeconds() const;  // negative: none was measured

 private:
  const bool traced_;
  const std::unordered_map<std::string, std::string> placement_;
  std::atomic<int> runs_{0};
  std::atomic<bool> taken_{false};
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<double>> nodes_;
  std::vector<double> steps_;
};

}  // namespace tutti
