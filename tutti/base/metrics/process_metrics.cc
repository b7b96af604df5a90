// Values are read from /proc when metrics are collected; missing ones count as 0.
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "tutti/base/metrics/metrics.h"

namespace tutti {
namespace {

// Field `number` of /proc/self/stat, counted from 1 as proc(5) does; at least 3, behind the name.
double StatField(int number) {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  size_t begin = name_end + 2;
  for (int field = 3; field < number && begin != std::string::npos; ++field) {
    begin = text.find(' ', begin);
    if (begin != std::string::npos) ++begin;
  }
  return begin == std::string::npos || begin >= text.size() ? 0
                                                            : std::strtod(&text[begin], nullptr);
}

double ResidentBytes() { return StatField(24) * double(::sysconf(_SC_PAGESIZE)); }

double ProcessorSeconds() {
  rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenDescriptors() {
  std::error_code error;
  double count = -1;  // the listing itself has one
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return error ? 0 : count;
}

}  // namespace

void AddProcessMetrics(MetricsRegistry& metrics) {
  metrics.AddGauge("process_resident_memory_bytes", "Memory of this process that is in RAM.",
                   ResidentBytes);
  metrics.AddGauge("process_virtual_memory_bytes", "Address space of this process.",
                   [] { return StatField(23); });
  metrics.AddGauge("process_threads", "Threads of this process.", [] { return StatField(20); });
  metrics.AddGauge("process_open_fds", "File descriptors that are open.", OpenDescriptors);
  metrics.AddCounter("process_cpu_seconds_total", "Processor time that was used.",
                     ProcessorSeconds);
  metrics.AddGauge("process_start_time_seconds", "When the metrics began, in seconds since 1970.")
      .Set(double(std::time(nullptr)));
}

}  // namespace tutti
