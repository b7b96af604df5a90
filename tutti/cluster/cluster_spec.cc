#include "tutti/cluster/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/device/device.h"
#include "tutti/net/address.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 4> kJobs = {"chief", "worker", "ps", "evaluator"};

constexpr size_t kMostFingerprintBytes = 128 << 10;

absl::Status CheckRole(const std::string& job, size_t tasks, std::string_view where) {
  if (std::find(kJobs.begin(), kJobs.end(), job) == kJobs.end()) {
    return InvalidArgument("{} has the job \"{}\"; expected chief, worker, ps or evaluator{}",
                           where, job,
                           job == "master" ? " (\"master\" is called \"chief\" here)" : "");
  }
  if ((job == "chief" || job == "evaluator") && tasks > 1) {
    return InvalidArgument("{}.{} has {} tasks; expected one", where, job, tasks);
  }
  return absl::OkStatus();
}

// The names of jobs in the order in which they are shown: those that train first.
std::vector<std::string> JobsInOrder(const ClusterSpec::Jobs& jobs) {
  std::vector<std::string> names;
  for (const std::string_view job : kJobs) {
    if (jobs.contains(std::string(job))) names.emplace_back(job);
  }
  for (const auto& [job, tasks] : jobs) {
    if (std::find(kJobs.begin(), kJobs.end(), job) == kJobs.end()) names.push_back(job);
  }
  return names;
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
    if (!IsJobName(job)) {
      return InvalidArgument("{} has the job \"{}\"; expected letters, digits, '_' and '-'", where,
                             job);
    }
    if (tasks.empty()) {
      return InvalidArgument("{}.{} has no task; expected at least one \"host:port\"", where, job);
    }
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
  ClusterSpec spec;
  spec.jobs_ = std::move(jobs);
  return spec;
}

absl::StatusOr<ClusterSpec> ClusterSpec::MakeForTraining(Jobs jobs, std::string_view where) {
  for (const auto& [job, tasks] : jobs) {
    TUTTI_RETURN_IF_ERROR(CheckRole(job, tasks.size(), where));
  }
  const bool trains = jobs.contains("chief") || jobs.contains("worker");
  TUTTI_ASSIGN_OR_RETURN(ClusterSpec spec, Make(std::move(jobs), where));
  if (trains) return spec;
  return InvalidArgument("{} has neither chief nor worker; expected at least one of them", where);
}

std::vector<TaskId> ClusterSpec::tasks() const {
  std::vector<TaskId> all;
  for (const auto& [job, tasks] : jobs_) {
    for (const auto& [index, address] : tasks) all.push_back({job, index});
  }
  return all;
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

TaskId ClusterSpec::Chief() const {
  const std::vector<TaskId> trainers = Trainers();
  return trainers.empty() ? TaskId{} : trainers.front();
}

std::string ClusterSpec::ToString() const {
  std::string text;
  for (const std::string& job : JobsInOrder(jobs_)) {
    const auto tasks = jobs_.find(job);
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
  for (const std::string& job : JobsInOrder(jobs_)) {
    const auto tasks = jobs_.find(job);
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
