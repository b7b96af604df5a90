#include "tutti/cluster/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/address.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 4> kJobs = {"chief", "worker", "ps", "evaluator"};

constexpr size_t kMostFingerprintBytes = 128 << 10;

absl::Status CheckJob(const std::string& job, const std::map<int, std::string>& tasks,
                      std::string_view where) {
  if (std::find(kJobs.begin(), kJobs.end(), job) == kJobs.end()) {
    return InvalidArgument("{} has the job \"{}\"; expected chief, worker, ps or evaluator{}",
                           where, job,
                           job == "master" ? " (\"master\" is called \"chief\" here)" : "");
  }
  if (tasks.empty()) {
    return InvalidArgument("{}.{} has no task; expected at least one \"host:port\"", where, job);
  }
  if ((job == "chief" || job == "evaluator") && tasks.size() > 1) {
    return InvalidArgument("{}.{} has {} tasks; expected one", where, job, tasks.size());
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToString(const TaskId& task) {
  return fmt::format("/job:{}/task:{}", task.job, task.index);
}

absl::StatusOr<ClusterSpec> ClusterSpec::Make(Jobs jobs, std::string_view where) {
  if (jobs.empty()) {
    return InvalidArgument("{} is empty; expected jobs, such as {{\"worker\": [\"host:port\"]}}",
                           where);
  }
  std::map<std::string, TaskId> owners;
  for (const auto& [job, tasks] : jobs) {
    TUTTI_RETURN_IF_ERROR(CheckJob(job, tasks, where));
    for (const auto& [index, address] : tasks) {
      if (index < 0) {
        return InvalidArgument("{}.{} has the task index {}; expected 0 or more", where, job,
                               index);
      }
      if (auto parsed = net::ParseEndpoint(address); !parsed.ok()) {
        return InvalidArgument("{}.{}[{}]: {}", where, job, index, MessageOf(parsed.status()));
      } else if (parsed->port == 0) {
        return InvalidArgument("{}.{}[{}] is \"{}\"; expected a port from 1 to 65535", where, job,
                               index, address);
      }
      const auto [owner, added] = owners.try_emplace(address, TaskId{job, index});
      if (!added) {
        return InvalidArgument("{}.{}[{}] is \"{}\", which is {} already; every task needs its own",
                               where, job, index, address, tutti::ToString(owner->second));
      }
    }
  }
  if (!jobs.contains("chief") && !jobs.contains("worker")) {
    return InvalidArgument("{} has neither chief nor worker; expected somebody who trains", where);
  }
  ClusterSpec spec;
  spec.jobs_ = std::move(jobs);
  return spec;
}

bool ClusterSpec::Has(const TaskId& task) const {
  const auto job = jobs_.find(task.job);
  return job != jobs_.end() && job->second.contains(task.index);
}

const std::string& ClusterSpec::AddressOf(const TaskId& task) const {
  return jobs_.at(task.job).at(task.index);
}

std::vector<TaskId> ClusterSpec::Trainers() const {
  std::vector<TaskId> trainers;
  for (const char* job : {"chief", "worker"}) {
    const auto tasks = jobs_.find(job);
    if (tasks == jobs_.end()) continue;
    for (const auto& [index, address] : tasks->second) trainers.push_back({job, index});
  }
  return trainers;
}

TaskId ClusterSpec::Chief() const { return Trainers().front(); }

std::string ClusterSpec::ToString() const {
  std::string text;
  for (const std::string_view job : kJobs) {
    const auto tasks = jobs_.find(std::string(job));
    if (tasks == jobs_.end()) continue;
    text += fmt::format("{:<9} ", job);
    const char* separator = "";
    for (const auto& [index, address] : tasks->second) {
      text += separator + address;
      separator = ", ";
    }
    text += '\n';
  }
  return text;
}

std::vector<std::string> ClusterSpec::Fingerprint() const {
  std::vector<std::string> lines;
  size_t bytes = 0;
  for (const std::string_view job : kJobs) {
    const auto tasks = jobs_.find(std::string(job));
    if (tasks == jobs_.end()) continue;
    for (const auto& [index, address] : tasks->second) {
      lines.push_back(fmt::format("cluster.{}[{}]={}", job, index, address));
      bytes += lines.back().size();
    }
  }
  if (bytes <= kMostFingerprintBytes) return lines;
  const size_t tasks = lines.size();
  uint64_t sum = 0xcbf29ce484222325;  // FNV-1a: the same in every process, unlike std::hash
  for (const std::string& line : lines) {
    for (const char c : line + '\n') sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return {fmt::format("cluster.tasks={}", tasks), fmt::format("cluster.checksum={:016x}", sum)};
}

}  // namespace tutti
