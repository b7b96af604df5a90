#include "tutti/base/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(Metrics, WritesEveryKind) {
  MetricsRegistry metrics;
  metrics.AddCounter("steps_total", "Updates.").Add(3);
  metrics.AddGauge("loss", "The last one.").Set(0.25);
  Histogram& times = metrics.AddHistogram("step_seconds", "Of a step.", {0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) times.Observe(value);
  EXPECT_EQ(metrics.ToPrometheus(),
            "# HELP loss The last one.\n"
            "# TYPE loss gauge\n"
            "loss 0.25\n"
            "# HELP step_seconds Of a step.\n"
            "# TYPE step_seconds histogram\n"
            "step_seconds_bucket{le=\"0.1\"} 2\n"
            "step_seconds_bucket{le=\"1\"} 3\n"
            "step_seconds_bucket{le=\"+Inf\"} 4\n"
            "step_seconds_sum 7.65\n"
            "step_seconds_count 4\n"
            "# HELP steps_total Updates.\n"
            "# TYPE steps_total counter\n"
            "steps_total 3\n");
}

TEST(Metrics, LabelsAreQuotedAndSorted) {
  MetricsRegistry metrics;
  metrics.AddGauge("bytes", "A\\b\nc", {{"to", "say \"x\"\n"}, {"from", "\\"}}).Set(1);
  EXPECT_EQ(metrics.ToPrometheus(),
            "# HELP bytes A\\\\b\\nc\n"
            "# TYPE bytes gauge\n"
            "bytes{from=\"\\\\\",to=\"say \\\"x\\\"\\n\"} 1\n");
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  MetricsRegistry metrics;
  EXPECT_EQ(&metrics.AddCounter("a_total", "", {{"x", "1"}, {"y", "2"}}),
            &metrics.AddCounter("a_total", "", {{"y", "2"}, {"x", "1"}}));
  EXPECT_NE(&metrics.AddCounter("a_total", "", {{"x", "1"}}),
            &metrics.AddCounter("a_total", "", {{"x", "2"}}));
}

TEST(Metrics, ValuesCanBeAskedForWhenSomebodyLooks) {
  MetricsRegistry metrics;
  double value = 1;
  metrics.AddGauge("level", "Now.", [&value] { return value; });
  EXPECT_THAT(metrics.ToPrometheus(), HasSubstr("\nlevel 1\n"));
  value = std::numeric_limits<double>::infinity();
  EXPECT_THAT(metrics.ToPrometheus(), HasSubstr("\nlevel +Inf\n"));
}

TEST(Metrics, BadNamesAreErrors) {
  MetricsRegistry metrics;
  for (const char* name : {"", "1a", "a b", "a-b", "\xff"}) {
    EXPECT_THROW(metrics.AddGauge(name, ""), Error) << name;
    EXPECT_THROW(metrics.AddGauge("good", "", {{name, "x"}}), Error) << name;
  }
  metrics.AddGauge("a", "");
  EXPECT_THROW(metrics.AddCounter("a", ""), Error);
  EXPECT_THROW(Histogram({2, 1}), Error);
}

TEST(Metrics, NothingIsLostBetweenThreads) {
  MetricsRegistry metrics;
  Counter& counter = metrics.AddCounter("a_total", "");
  Histogram& histogram = metrics.AddHistogram("b", "", GrowingBounds(1, 2, 4));
  constexpr int kThreads = 4, kRounds = 10000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) {
          counter.Add();
          histogram.Observe(3);
        }
      });
    }
  }
  EXPECT_EQ(counter.value(), kThreads * kRounds);
  EXPECT_EQ(histogram.count(2), kThreads * kRounds);
  EXPECT_EQ(histogram.sum(), 3.0 * kThreads * kRounds);
}

TEST(Metrics, ProcessHasMemoryAndThreads) {
  MetricsRegistry metrics;
  AddProcessMetrics(metrics);
  const std::string page = metrics.ToPrometheus();
  EXPECT_THAT(page, testing::ContainsRegex("process_resident_memory_bytes [1-9][0-9]+"));
  EXPECT_THAT(page, testing::ContainsRegex("process_threads [1-9]"));
  EXPECT_THAT(page, testing::ContainsRegex("process_open_fds [1-9]"));
}

}  // namespace
}  // namespace tutti
