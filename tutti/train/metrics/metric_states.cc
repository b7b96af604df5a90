#include "tutti/train/metrics/metric_states.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/train/estimator/model.h"

namespace tutti {
namespace {

void Append(const Tensor& value, std::vector<double>& to) {
  VisitDType(value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T& element : value.values<T>()) {
      if constexpr (std::is_arithmetic_v<T>) {
        to.push_back(double(element));
      } else {
        to.push_back(double(float(element)));
      }
    }
  });
}

void CheckMetric(const std::string& name, const Metric& metric) {
  const std::string what = fmt::format("metric \"{}\"", name);
  if (metric.state.empty()) {
    ThrowInvalidArgument(fmt::format("the model function gave an empty {}", what));
  }
  if (metric.is_batch_mean()) {
    RequireFloatScalar(metric.state[0], what);
    return;
  }
  for (const Output& output : metric.state) {
    if (!output) {
      ThrowInvalidArgument(fmt::format("the {} of the model function has an empty state", what));
    }
  }
}

}  // namespace

bool SmallerIsBetter(std::string_view metric) {
  return metric.ends_with("loss") || metric.ends_with("rmse") || metric.ends_with("error") ||
         metric.starts_with("bits_per");
}

MetricStates::MetricStates(std::map<std::string, Metric> metrics) {
  for (auto& [name, metric] : metrics) {
    CheckMetric(name, metric);
    outputs_.insert(outputs_.end(), metric.state.begin(), metric.state.end());
    entries_.push_back({name, std::move(metric)});
  }
}

void MetricStates::AddState(Entry& entry, std::span<const double> state) {
  if (state.empty()) return;
  if (entry.metric.merge) {
    entry.metric.merge(entry.state, state);
    return;
  }
  if (entry.state.empty()) entry.state.assign(state.size(), 0.0);
  if (entry.state.size() != state.size()) {
    ThrowInvalidArgument(fmt::format(
        "metric \"{}\": the state of a batch has {} numbers, that of an earlier one {}; "
        "states of several sizes need a merge function",
        entry.name, state.size(), entry.state.size()));
  }
  for (size_t i = 0; i < state.size(); ++i) entry.state[i] += state[i];
}

void MetricStates::Add(std::span<const Tensor> values, int64_t samples) {
  std::vector<double> state;
  size_t next = 0;
  for (Entry& entry : entries_) {
    state.clear();
    for (size_t i = 0; i < entry.metric.state.size(); ++i) Append(values[next++], state);
    if (entry.metric.is_batch_mean()) state = {state[0] * double(samples), double(samples)};
    AddState(entry, state);
  }
}

// For each metric the number of its numbers, then these.
std::string MetricStates::Pack() const {
  std::vector<double> all;
  for (const Entry& entry : entries_) {
    all.push_back(double(entry.state.size()));
    all.insert(all.end(), entry.state.begin(), entry.state.end());
  }
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(double)};
}

void MetricStates::MergePacked(const std::string& bytes) {
  std::vector<double> all(bytes.size() / sizeof(double));
  std::memcpy(all.data(), bytes.data(), all.size() * sizeof(double));
  std::span<const double> rest = all;
  for (Entry& entry : entries_) {
    const size_t size = rest.empty() ? 0 : size_t(rest[0]);
    if (rest.empty() || size > rest.size() - 1) {
      throw Error(Code::kInternal, "a worker sent states of metrics that are cut off");
    }
    AddState(entry, rest.subspan(1, size));
    rest = rest.subspan(1 + size);
  }
}

void MetricStates::Merge(Peers& peers) {
  if (peers.workers() == 1) return;
  const std::vector<std::string> states = peers.Gather("metrics", Pack());
  Clear();
  for (const std::string& bytes : states) {
    if (!bytes.empty()) MergePacked(bytes);  // else the worker is lost
  }
}

std::vector<std::string> MetricStates::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

Metrics MetricStates::Finish() const {
  Metrics metrics;
  for (const Entry& entry : entries_) {
    if (entry.state.empty()) continue;
    metrics[entry.name] = entry.metric.is_batch_mean() ? entry.state[0] / entry.state[1]
                                                       : entry.metric.finish(entry.state);
  }
  return metrics;
}

void MetricStates::Clear() {
  for (Entry& entry : entries_) entry.state.clear();
}

}  // namespace tutti
