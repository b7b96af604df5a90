#include "tools/tutti/doctor.h"

#include <fmt/format.h>
#include <sched.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "tutti/base/console.h"
#include "tutti/kernels/libraries.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

void Line(std::string_view name, std::string_view value) {
  FormatTo(stdout, "{:<11}{}\n", name, value);
}

// What stands behind "key : " in a file of /proc; empty when it is not there.
std::string ProcValue(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != line.npos && begin != line.npos) return line.substr(begin);
  }
  return "";
}

int CoresOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// The cgroup's limit in bytes, if there is one.
std::optional<double> MemoryLimit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  double bytes = 0;
  if (file >> bytes) return bytes;
  return std::nullopt;
}

std::string Memory() {
  const auto gigabytes = [](const std::string& kilobytes) {
    return std::strtod(kilobytes.c_str(), nullptr) * 1024 * 1e-9;
  };
  std::string text = fmt::format("{:.1f} GB, {:.1f} GB of it free",
                                 gigabytes(ProcValue("/proc/meminfo", "MemTotal")),
                                 gigabytes(ProcValue("/proc/meminfo", "MemAvailable")));
  if (const auto limit = MemoryLimit()) {
    text += fmt::format("; this process may use {:.1f} GB", *limit * 1e-9);
  }
  return text;
}

std::string Libraries() {
  std::string text;
  for (const auto& [name, version] : KernelLibraries())
    text += fmt::format("{} {}, ", name, version);
  return text + fmt::format("zlib {}, fmt {}.{}.{}", zlibVersion(), FMT_VERSION / 10000,
                            FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

}  // namespace

bool Doctor() {
  bool well = true;
  const int cores = CoresOfThisProcess();
  const std::string model = ProcValue("/proc/cpuinfo", "model name");
  Line("cores", model.empty() ? fmt::format("{}", cores) : fmt::format("{} ({})", cores, model));
  Line("SIMD", SimdTarget());
  Line("memory", Memory());
  Line("libraries", Libraries());
  try {
    Line("data", fmt::format("Fashion-MNIST in {}", FindFashionMnist()));
  } catch (const Error& error) {
    Line("data", error.what());
    well = false;
  }
  std::string launch =
      fmt::format("one process, device /cpu:0 with {} core{}", cores, cores == 1 ? "" : "s");
  if (std::getenv("TF_CONFIG") != nullptr) {
    launch += "; TF_CONFIG is set, but this version trains in one process and does not read it";
    well = false;
  }
  Line("launch", launch);
  return well;
}

}  // namespace tutti::tools
