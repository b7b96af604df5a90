#include "tutti/base/metrics/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tutti/base/status.h"

namespace tutti {

struct MetricsRegistry::Metric {
  Counter counter;
  Gauge gauge;
  std::unique_ptr<Histogram> histogram;
  std::function<double()> asked;  // instead of the first two
};

struct MetricsRegistry::Family {
  Kind kind;
  std::string help;
  // By the text between braces; nodes stay where they are.
  std::map<std::string, Metric> metrics;
};

namespace {

bool IsName(std::string_view name, bool colons) {
  const auto fits = [colons](char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':') ||
           (!first && c >= '0' && c <= '9');
  };
  if (name.empty() || !fits(name[0], true)) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return fits(c, false); });
}

// As Prometheus quotes: help texts without the quotation mark, values of labels with it.
std::string Escaped(std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\\' || (quotes && c == '"')) {
      escaped += '\\';
      escaped += c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string LabelText(const MetricsRegistry::Labels& labels) {
  MetricsRegistry::Labels sorted = labels;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [name, value] : sorted) {
    if (!IsName(name, false) || name.starts_with("__")) {
      ThrowInvalidArgument(fmt::format(
          "label \"{}\": expected letters, digits and _, not a digit first and not __", name));
    }
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, Escaped(value, true));
  }
  return text;
}

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void Write(std::string& page, const std::string& name, const std::string& labels, double value) {
  page += labels.empty() ? fmt::format("{} {}\n", name, Number(value))
                         : fmt::format("{}{{{}}} {}\n", name, labels, Number(value));
}

void Write(std::string& page, const std::string& name, const std::string& labels,
           const Histogram& histogram) {
  const std::string before = labels.empty() ? "" : labels + ",";
  int64_t count = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    count += histogram.count(i);
    const std::string bound =
        i < histogram.bounds().size() ? Number(histogram.bounds()[i]) : "+Inf";
    Write(page, name + "_bucket", fmt::format("{}le=\"{}\"", before, bound), double(count));
  }
  Write(page, name + "_sum", labels, histogram.sum());
  Write(page, name + "_count", labels, double(count));
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  if (!std::is_sorted(bounds_.begin(), bounds_.end(), std::less_equal<>())) {
    ThrowInvalidArgument("the bounds of a histogram must ascend");
  }
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[size_t(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

MetricsRegistry::MetricsRegistry() = default;
MetricsRegistry::~MetricsRegistry() = default;

// REQUIRES: mutex_ is held.
MetricsRegistry::Metric& MetricsRegistry::Find(Kind kind, const std::string& name,
                                               const std::string& help, const Labels& labels) {
  if (!IsName(name, true)) {
    ThrowInvalidArgument(
        fmt::format("metric \"{}\": expected letters, digits, _ and :, not a digit first", name));
  }
  const std::string text = LabelText(labels);
  std::unique_ptr<Family>& family = families_[name];
  if (family == nullptr) family = std::make_unique<Family>(Family{kind, help, {}});
  if (family->kind != kind) {
    ThrowInvalidArgument(
        fmt::format("metric \"{}\" is there already, as one of another kind", name));
  }
  return family->metrics[text];
}

Counter& MetricsRegistry::AddCounter(const std::string& name, const std::string& help,
                                     const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return Find(Kind::kCounter, name, help, labels).counter;
}

Gauge& MetricsRegistry::AddGauge(const std::string& name, const std::string& help,
                                 const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return Find(Kind::kGauge, name, help, labels).gauge;
}

Histogram& MetricsRegistry::AddHistogram(const std::string& name, const std::string& help,
                                         const std::vector<double>& bounds, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Histogram>& histogram = Find(Kind::kHistogram, name, help, labels).histogram;
  if (histogram == nullptr) histogram = std::make_unique<Histogram>(bounds);
  return *histogram;
}

void MetricsRegistry::AddGauge(const std::string& name, const std::string& help,
                               std::function<double()> value, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Find(Kind::kGauge, name, help, labels).asked = std::move(value);
}

void MetricsRegistry::AddCounter(const std::string& name, const std::string& help,
                                 std::function<double()> value, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Find(Kind::kCounter, name, help, labels).asked = std::move(value);
}

std::string MetricsRegistry::ToPrometheus() const {
  static constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  const std::lock_guard lock(mutex_);
  std::string page;
  for (const auto& [name, family] : families_) {
    page += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, Escaped(family->help, false), name,
                        kKinds[size_t(family->kind)]);
    for (const auto& [labels, metric] : family->metrics) {
      if (family->kind == Kind::kHistogram) {
        if (metric.histogram != nullptr) Write(page, name, labels, *metric.histogram);
      } else {
        Write(page, name, labels,
              metric.asked                     ? metric.asked()
              : family->kind == Kind::kCounter ? metric.counter.value()
                                               : metric.gauge.value());
      }
    }
  }
  return page;
}

std::vector<double> GrowingBounds(double first, double factor, int count) {
  std::vector<double> bounds;
  for (int i = 0; i < count; ++i) bounds.push_back(first * std::pow(factor, i));
  return bounds;
}

}  // namespace tutti
