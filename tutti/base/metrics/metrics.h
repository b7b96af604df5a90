#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The metrics of a process, for monitoring. Counters, gauges and histograms are updated without a
// lock, from any thread, at the cost of an atomic addition.

// Only grows.
class Counter {
 public:
  void Add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Goes up and down.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// How often values lay at or below each of some bounds, and their sum.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // ascending
  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Values in the bucket that ends at bound i; i == bounds().size(): above all of them.
  int64_t count(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_{0};
};

// The metrics of a process, by name and labels. Owned by the code that runs the process (Main, a
// server) and passed down. A metric stays until the registry is destroyed. Thread-safe.
//
//   MetricsRegistry metrics;
//   Counter& steps = metrics.AddCounter("tutti_steps_total", "Updates that were made.");
//   steps.Add();
//   std::string page = metrics.ToPrometheus();
class MetricsRegistry {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;  // {{"link", "ps 0"}}

  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // The metric with this name and labels, created at the first call. Names follow the rules of
  // Prometheus: tutti_step_seconds; those of counters end in _total. Throw Error (kInvalidArgument)
  // for an invalid name or label, and for a name that is used by another kind of metric.
  Counter& AddCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& AddHistogram(const std::string& name, const std::string& help,
                          const std::vector<double>& bounds, const Labels& labels = {});
  // A gauge or counter whose value is computed when the metrics are read: `value` is called on any
  // thread and must stay callable. A second one with the same name and labels replaces the first.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> value,
                const Labels& labels = {});
  void AddCounter(const std::string& name, const std::string& help, std::function<double()> value,
                  const Labels& labels = {});

  // All of them in the text format of Prometheus, version 0.0.4, by name.
  std::string ToPrometheus() const;

 private:
  struct Family;
  struct Metric;
  enum class Kind { kCounter, kGauge, kHistogram };
  Metric& Find(Kind kind, const std::string& name, const std::string& help, const Labels& labels);

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Family>> families_;
};

// Bounds of a histogram: `count` of them, each `factor` times the one before.
std::vector<double> GrowingBounds(double first, double factor, int count);

// Memory, processor time, threads, descriptors and start time of this process, under the names that
// Prometheus' own clients use.
void AddProcessMetrics(MetricsRegistry& metrics);

}  // namespace tutti
