#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/tensor/tensor.h"
#include "tutti/train/metrics/metric.h"
#include "tutti/train/strategies/peers.h"

namespace tutti {

// Is a smaller value of the metric of this name better? So it is for names that end in "loss",
// "rmse" or "error", and for those that begin with "bits_per".
bool SmallerIsBetter(std::string_view metric);

// The named metrics of a model: which outputs of its graph they need, and their states over the
// batches that were added. A copy starts from the same states.
class MetricStates {
 public:
  MetricStates() = default;
  // Throws Error, naming the metric, when its state is empty or has no numbers, or a batch mean is
  // no float32 or float64 scalar.
  explicit MetricStates(std::map<std::string, Metric> metrics);

  std::vector<std::string> names() const;

  // What each batch must bring: to be fetched in this order.
  const std::vector<Output>& outputs() const { return outputs_; }

  // Adds a batch of `samples` samples. Throws Error when states cannot be added.
  void Add(std::span<const Tensor> values, int64_t samples);

  // Merges the states of all workers, in the order of ranks, so that all have the same. All workers
  // call it. Throws Error.
  void Merge(Peers& peers);

  // The figures; of metrics without any batch, nothing.
  Metrics Finish() const;

  void Clear();

 private:
  struct Entry {
    std::string name;
    Metric metric;
    std::vector<double> state = {};
  };
  std::string Pack() const;
  void MergePacked(const std::string& bytes);
  void AddState(Entry& entry, std::span<const double> state);

  std::vector<Entry> entries_;
  std::vector<Output> outputs_;
};

}  // namespace tutti
