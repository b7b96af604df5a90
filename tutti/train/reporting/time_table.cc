#include "tutti/train/reporting/time_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace tutti {
namespace {

std::string Share(double seconds, double total) {
  return fmt::format("{:.1f}%", total > 0 ? 100 * seconds / total : 0);
}

std::string Megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

std::string RenderWithServers(std::span<const WorkerTime> workers) {
  std::string text = fmt::format("{:<8} {:>8} {:>8} {:>8} {:>11} {:>11}  {}\n", "worker", "compute",
                                 "waiting", "input", "read", "written", "waiting for");
  for (size_t w = 0; w < workers.size(); ++w) {
    const WorkerTime& time = workers[w];
    text += fmt::format(
        "{:<8} {:>8} {:>8} {:>8} {:>11} {:>11}  {}\n", w, Share(time.compute, time.total),
        Share(time.exposed, time.total), Share(time.input, time.total), Megabytes(time.read),
        Megabytes(time.written),
        time.slowest < 0
            ? "servers"
            : fmt::format("worker {} ({})", time.slowest, Share(time.waited, time.total)));
  }
  return text;
}

}  // namespace

void FindSlowest(std::span<WorkerTime> workers) {
  const WorkerTime* slowest = nullptr;
  for (const WorkerTime& time : workers) {
    if (time.total > 0 && (slowest == nullptr || time.exposed < slowest->exposed)) slowest = &time;
  }
  if (slowest == nullptr) return;
  const int rank = int(slowest - workers.data());
  const double least = slowest->exposed;
  for (WorkerTime& time : workers) {
    if (time.exposed - least < time.total / 100) continue;
    time.slowest = rank;
    time.waited = time.exposed - least;
  }
}

std::string RenderServerTable(std::span<const TaskLoad> servers) {
  if (servers.empty()) return "";
  std::string text = fmt::format("{:<16} {:>6} {:>9} {:>11} {:>11} {:>11} {:>11}\n", "server",
                                 "busy", "requests", "received", "sent", "lock waits", "cloned");
  for (const TaskLoad& server : servers) {
    text +=
        fmt::format("{:<16} {:>6} {:>9} {:>11} {:>11} {:>8.1f} ms {:>11}\n", server.task,
                    Share(double(server.busy_nanos), double(server.nanos)), server.requests,
                    Megabytes(double(server.bytes_received)), Megabytes(double(server.bytes_sent)),
                    double(server.lock_nanos) * 1e-6, Megabytes(double(server.cloned_bytes)));
  }
  return text;
}

std::string RenderTimeTable(std::span<const WorkerTime> workers) {
  if (std::any_of(workers.begin(), workers.end(),
                  [](const WorkerTime& time) { return time.has_servers(); })) {
    return RenderWithServers(workers);
  }
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
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", time.total, time.input, time.compute,
                     time.hidden, time.exposed, time.bytes, time.slowest, time.waited, time.steps,
                     time.samples, time.read, time.written);
}

WorkerTime WorkerTimeFromText(const std::string& text) {
  WorkerTime time;
  std::sscanf(text.c_str(), "%lf %lf %lf %lf %lf %lf %d %lf %lf %lf %lf %lf", &time.total,
              &time.input, &time.compute, &time.hidden, &time.exposed, &time.bytes, &time.slowest,
              &time.waited, &time.steps, &time.samples, &time.read, &time.written);
  return time;
}

}  // namespace tutti
