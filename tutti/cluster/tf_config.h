#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/cluster/cluster_spec.h"

namespace tutti {

// What a task knows of its cluster and of itself.
struct TaskConfig {
  ClusterSpec cluster;
  TaskId task;
  std::string environment;  // free text, "cloud" for example
  // The cluster lists only some tasks, because workers may come and go ("sparseCluster"): for a
  // worker itself and all ps, for a ps only itself, and for other roles none, not even the task
  // itself.
  bool sparse = false;

  bool is_chief() const { return task == cluster.Chief(); }
  // Position among the tasks that train, -1 for the others.
  int TrainerRank() const;
};

// Reads the text of TF_CONFIG:
//
//   {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
//    "task": {"type": "worker", "index": 1}}
//
// A job is a list of addresses, or a map from index to address ({"1": "host:port"}). The evaluator
// may stand inside the cluster or outside. Kubeflow's operator writes "sparseCluster" instead of
// "cluster" where workers may come and go; the list of one ps that it gives ps 1 is the address of
// ps 1. Every mistake is an INVALID_ARGUMENT that names the key, what was found and what was
// expected; an empty text is a mistake, too.
absl::StatusOr<TaskConfig> ParseTfConfig(std::string_view text);

// The TF_CONFIG of this process, and nothing if it has none.
absl::StatusOr<std::optional<TaskConfig>> TfConfigFromEnvironment();

// The other way round, for launchers.
std::string ToTfConfig(const TaskConfig& config);

}  // namespace tutti
