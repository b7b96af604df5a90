#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

// One process of a cluster.
struct TaskId {
  std::string job;
  int index = 0;
  bool operator==(const TaskId&) const = default;
  auto operator<=>(const TaskId&) const = default;
};
std::string ToString(const TaskId& task);  // "/job:worker/task:1"

// The jobs of a cluster and the address of each of their tasks. Indices may have gaps. A value.
class ClusterSpec {
 public:
  // job -> index -> "host:port".
  using Jobs = std::map<std::string, std::map<int, std::string>>;

  ClusterSpec() = default;
  // Checks everything that can be wrong with the description itself: names of jobs, addresses, and
  // that no two are the same. Jobs may have any name. `where` begins the name of the key in an
  // error: "TF_CONFIG: cluster".
  static absl::StatusOr<ClusterSpec> Make(Jobs jobs, std::string_view where = "cluster");
  // The same for a cluster that trains: jobs are chief, worker, ps and evaluator, somebody trains,
  // and there is at most one chief and one evaluator.
  static absl::StatusOr<ClusterSpec> MakeForTraining(Jobs jobs, std::string_view where = "cluster");

  const Jobs& jobs() const { return jobs_; }
  std::vector<TaskId> tasks() const;  // all, by job and index
  bool Has(const TaskId& task) const;
  // REQUIRES: Has(task).
  const std::string& AddressOf(const TaskId& task) const;

  // The tasks that train, in the order of their ranks: the chief, then the workers by index.
  std::vector<TaskId> Trainers() const;
  // The task that leads the training: the chief, or the first worker if there is no chief. Its job
  // is empty if the cluster has neither, such as a cluster of servers or the sparseCluster of a ps.
  TaskId Chief() const;

  // A line per job, for the start of a run: "worker  10.0.0.1:2222, 10.0.0.2:2222".
  std::string ToString() const;
  // The same as lines "cluster.worker[1]=10.0.0.2:2222". Tasks compare them when they connect, and
  // an error shows the first difference. If the lines are too long, the number of tasks and a
  // checksum instead.
  std::vector<std::string> Fingerprint() const;
  bool operator==(const ClusterSpec&) const = default;

 private:
  Jobs jobs_;
};

}  // namespace tutti
