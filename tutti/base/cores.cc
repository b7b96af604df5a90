#include "tutti/base/cores.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "tutti/base/status.h"

namespace tutti {
namespace {

bool Overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&b](int core) { return std::binary_search(b.begin(), b.end(), core); });
}

// Claims that differ: core by core, those with the fewest claimants first.
void DivideOverlap(std::span<const CoreClaim> claims, const std::vector<size_t>& sharers,
                   std::vector<std::vector<int>>& shares) {
  std::map<int, std::vector<size_t>> claimants;
  for (const size_t sharer : sharers) {
    for (const int core : claims[sharer].cores) claimants[core].push_back(sharer);
    shares[sharer].clear();
  }
  std::vector<std::pair<int, std::vector<size_t>>> cores(claimants.begin(), claimants.end());
  std::stable_sort(cores.begin(), cores.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  for (const auto& [core, wanting] : cores) {
    shares[*std::min_element(wanting.begin(), wanting.end(), [&](size_t a, size_t b) {
      return shares[a].size() < shares[b].size();
    })].push_back(core);
  }
  for (const size_t sharer : sharers) {
    std::sort(shares[sharer].begin(), shares[sharer].end());
    if (shares[sharer].empty()) shares[sharer] = claims[sharer].cores;
  }
}

double Smaller(double a, double b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// "200000 100000": so many microseconds in each period; "max 100000": no limit.
double LimitOfVersion2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

double LimitOfVersion1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period
                                                                                 : 0;
}

}  // namespace

namespace {

// "0-3,8": a list of cores as /sys writes it.
std::vector<int> ParseCoreList(const std::string& text) {
  std::vector<int> cores;
  const char* at = text.c_str();
  while (*at != 0) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at) break;
    long last = first;
    if (*end == '-') last = std::strtol(end + 1, &end, 10);
    for (long core = first; core <= last && core < CPU_SETSIZE; ++core) cores.push_back(int(core));
    at = *end == ',' ? end + 1 : end;
  }
  return cores;
}

}  // namespace

std::vector<std::vector<int>> UsableCoresByNode(const std::string& root) {
  const std::vector<int> usable = NumbersOfUsableCores();
  std::map<int, std::vector<int>> nodes;
  const std::string folder = root + "/sys/devices/system/node";
  if (DIR* const listed = opendir(folder.c_str()); listed != nullptr) {
    while (const dirent* const entry = readdir(listed)) {
      int number = 0;
      char more = 0;
      if (std::sscanf(entry->d_name, "node%d%c", &number, &more) != 1) continue;
      std::string text;
      std::getline(std::ifstream(folder + "/" + entry->d_name + "/cpulist"), text);
      for (const int core : ParseCoreList(text)) {
        if (std::binary_search(usable.begin(), usable.end(), core)) nodes[number].push_back(core);
      }
    }
    closedir(listed);
  }
  std::vector<std::vector<int>> cores;
  for (auto& [number, of_node] : nodes) cores.push_back(std::move(of_node));
  if (cores.empty()) cores.push_back(usable);
  return cores;
}

double CgroupCores(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  double cores = 0;
  // "0::/user.slice/job" of version 2, "4:cpu,cpuacct:/job" of version 1. Every group on the way up
  // may have a limit. In a container the path may be that of the host, and then only the root of
  // what it sees counts.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",cpu,") == controllers.npos) continue;
    const std::string base = root + (version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu");
    std::string path = line.substr(second + 1);
    while (true) {
      const std::string folder = base + (path == "/" ? "" : path);
      cores = Smaller(cores, version2 ? LimitOfVersion2(folder) : LimitOfVersion1(folder));
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return cores;
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return std::max(1, int(std::thread::hardware_concurrency()));
  }
  // More threads than the container is given time for would only be stopped in turn.
  static const double limit = CgroupCores();
  const int count = CPU_COUNT(&cores);
  return std::max(1, limit > 0 ? std::min(count, int(std::ceil(limit))) : count);
}

namespace {

std::atomic<int> cores_of_process = 0;  // 0: not counted yet, or changed since

}  // namespace

bool HasOneCore() {
  int cores = cores_of_process.load(std::memory_order_relaxed);
  if (cores == 0) {
    // Those of the first thread: the calling one may have been given fewer.
    cpu_set_t set;
    CPU_ZERO(&set);
    cores = ::sched_getaffinity(::getpid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 2;
    const double limit = CgroupCores();
    if (limit > 0 && limit <= 1) cores = 1;
    cores_of_process.store(cores, std::memory_order_relaxed);
  }
  return cores == 1;
}

std::vector<int> NumbersOfUsableCores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(size_t(core), &set)) cores.push_back(core);
  }
  return cores;
}

namespace {

absl::Status MakeSet(std::span<const int> cores, cpu_set_t& set) {
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) {
      return InvalidArgument("core {}: expected 0 to {}", core, CPU_SETSIZE - 1);
    }
    CPU_SET(size_t(core), &set);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunThreadOnCores(std::span<const int> cores) {
  cpu_set_t set;
  TUTTI_RETURN_IF_ERROR(MakeSet(cores, set));
  if (::sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return Unavailable("cannot choose the cores of this thread: {}", std::strerror(errno));
}

void MoveThreadTo(std::span<const int> cores) {
  if (cores.empty() || std::binary_search(cores.begin(), cores.end(), ::sched_getcpu())) return;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t wanted;
  if (!MakeSet(cores, wanted).ok()) return;
  CPU_AND(&wanted, &wanted, &allowed);
  if (CPU_COUNT(&wanted) == 0 || ::sched_setaffinity(0, sizeof(wanted), &wanted) != 0) return;
  (void)::sched_setaffinity(0, sizeof(allowed), &allowed);
}

absl::Status RunOnCores(std::span<const int> cores) {
  cpu_set_t set;
  TUTTI_RETURN_IF_ERROR(MakeSet(cores, set));
  // The calling thread first: what it starts from here on inherits its cores.
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
    return Unavailable("cannot choose the cores of this process: {}", std::strerror(errno));
  }
  DIR* const threads = ::opendir("/proc/self/task");
  if (threads == nullptr) {
    return Unavailable("cannot list the threads of this process: {}", std::strerror(errno));
  }
  while (const dirent* entry = ::readdir(threads)) {
    const auto thread = pid_t(std::strtol(entry->d_name, nullptr, 10));
    if (thread > 0) ::sched_setaffinity(thread, sizeof(set), &set);  // it may have ended: ignored
  }
  ::closedir(threads);
  cores_of_process.store(0, std::memory_order_relaxed);
  return absl::OkStatus();
}

std::vector<int> ShareOfCores(std::span<const int> cores, int index, int count) {
  const auto all = int64_t(cores.size());
  if (all == 0) return {};
  if (count >= all) return {cores[size_t(index % all)]};
  return {cores.begin() + all * index / count, cores.begin() + all * (index + 1) / count};
}

std::vector<std::vector<int>> DivideCores(std::span<const CoreClaim> claims) {
  std::vector<std::vector<int>> shares;
  for (const CoreClaim& claim : claims) shares.push_back(claim.cores);
  std::vector<bool> divided(claims.size());
  for (size_t first = 0; first < claims.size(); ++first) {
    if (divided[first]) continue;
    // All that share a core with it, or with one that does.
    std::vector<size_t> sharers = {first};
    divided[first] = true;
    for (size_t next = 0; next < sharers.size(); ++next) {
      const CoreClaim& known = claims[sharers[next]];
      for (size_t other = first + 1; other < claims.size(); ++other) {
        if (divided[other] || claims[other].host != known.host) continue;
        if (!Overlap(claims[other].cores, known.cores)) continue;
        divided[other] = true;
        sharers.push_back(other);
      }
    }
    std::sort(sharers.begin(), sharers.end());
    const bool alike = std::all_of(sharers.begin(), sharers.end(), [&](size_t sharer) {
      return claims[sharer].cores == claims[first].cores;
    });
    if (!alike) {
      DivideOverlap(claims, sharers, shares);
      continue;
    }
    for (size_t i = 0; i < sharers.size(); ++i) {
      shares[sharers[i]] = ShareOfCores(claims[first].cores, int(i), int(sharers.size()));
    }
  }
  return shares;
}

}  // namespace tutti
