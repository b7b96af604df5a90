#include "tutti/train/reporting/time_table.h"

#include <fmt/format.h>

#include <cstdio>

namespace tutti {
namespace {

std::string Share(double seconds, double total) {
  return fmt::format("{:.1f}%", total > 0 ? 100 * seconds / total : 0);
}

}  // namespace

std::string RenderTimeTable(std::span<const WorkerTime> workers) {
  if (workers.size() == 1) {
    return fmt::format("compute {}, waiting for input {}\n",
                       Share(workers[0].compute, workers[0].total),
                       Share(workers[0].input, workers[0].total));
  }
  std::string text =
      fmt::format("{:<8} {:>8} {:>12} {:>13} {:>8} {:>10}  {}\n", "worker", "compute",
                  "comm hidden", "comm exposed", "input", "reduced", "waiting for");
  for (size_t w = 0; w < workers.size(); ++w) {
    const WorkerTime& time = workers[w];
    const std::string whom = time.slowest < 0 ? "nobody"
                                              : fmt::format("worker {} ({})", time.slowest,
                                                            Share(time.waited, time.total));
    text += fmt::format("{:<8} {:>8} {:>12} {:>13} {:>8} {:>7.1f} MB  {}\n", w,
                        Share(time.compute, time.total), Share(time.hidden, time.total),
                        Share(time.exposed, time.total), Share(time.input, time.total),
                        time.bytes / 1e6, whom);
  }
  return text;
}

std::string ToText(const WorkerTime& time) {
  return fmt::format("{} {} {} {} {} {} {} {}", time.total, time.input, time.compute, time.hidden,
                     time.exposed, time.bytes, time.slowest, time.waited);
}

WorkerTime WorkerTimeFromText(const std::string& text) {
  WorkerTime time;
  std::sscanf(text.c_str(), "%lf %lf %lf %lf %lf %lf %d %lf", &time.total, &time.input,
              &time.compute, &time.hidden, &time.exposed, &time.bytes, &time.slowest, &time.waited);
  return time;
}

}  // namespace tutti
