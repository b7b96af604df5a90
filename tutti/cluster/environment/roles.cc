#include "tutti/cluster/environment/roles.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/status.h"

namespace tutti {

std::vector<TaskId> TasksOf(const RoleCounts& counts) {
  std::vector<TaskId> tasks;
  if (counts.chief) tasks.push_back({"chief", 0});
  for (int i = 0; i < counts.workers; ++i) tasks.push_back({"worker", i});
  for (int i = 0; i < counts.ps; ++i) tasks.push_back({"ps", i});
  if (counts.evaluator) tasks.push_back({"evaluator", 0});
  return tasks;
}

absl::StatusOr<RoleCounts> DivideRoles(int processes, int ps, bool evaluator) {
  const int others = ps + (evaluator ? 1 : 0);
  if (ps < 0 || processes - others < 1) {
    return InvalidArgument(
        "the job has {} process{}, and --ps {}{} leaves nobody to train; start at least {}",
        processes, processes == 1 ? "" : "es", ps, evaluator ? " --evaluator" : "", others + 1);
  }
  return RoleCounts{
      .chief = true, .workers = processes - others - 1, .ps = ps, .evaluator = evaluator};
}

std::string RoleName(const TaskId& task) {
  if (task.job == "chief" || task.job == "evaluator") return task.job;
  return fmt::format("{} {}", task.job, task.index);
}

int PositionOnHost(const ClusterSpec& cluster, const TaskId& task) {
  const auto host_of = [](const std::string& address) {
    return address.substr(0, address.rfind(':'));
  };
  if (!cluster.Has(task)) return 0;
  const std::string host = host_of(cluster.AddressOf(task));
  std::vector<std::string> jobs = {"chief", "worker", "ps", "evaluator"};
  for (const auto& [job, tasks] : cluster.jobs()) {
    if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) jobs.push_back(job);
  }
  int position = 0;
  for (const std::string& job : jobs) {
    const auto tasks = cluster.jobs().find(job);
    if (tasks == cluster.jobs().end()) continue;
    for (const auto& [index, address] : tasks->second) {
      if (TaskId{job, index} == task) return position;
      if (host_of(address) == host) ++position;
    }
  }
  return position;
}

}  // namespace tutti
