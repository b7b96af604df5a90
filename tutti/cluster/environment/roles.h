#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/cluster/cluster_spec.h"

namespace tutti {

// How many tasks of each role a job has.
struct RoleCounts {
  bool chief = false;  // without one worker 0 leads
  int workers = 1;
  int ps = 0;
  bool evaluator = false;

  int tasks() const { return (chief ? 1 : 0) + workers + ps + (evaluator ? 1 : 0); }
  bool operator==(const RoleCounts&) const = default;
};

// The tasks of a job in the order in which numbered processes take their roles: the chief, the
// workers, the ps tasks, the evaluator.
std::vector<TaskId> TasksOf(const RoleCounts& counts);

// Divides `processes` among the roles: so many ps, an evaluator if one is wanted, a chief, and
// workers for the rest. INVALID_ARGUMENT when nobody would be left to train.
absl::StatusOr<RoleCounts> DivideRoles(int processes, int ps, bool evaluator);

// The name of a task in messages: "worker 0"; "chief" and "evaluator" are the only ones of their
// kind.
std::string RoleName(const TaskId& task);

// How many tasks of the cluster, in the order above and then by job, come before this one at the
// same host: what a task adds to a port that all of them were given, so that each has its own.
int PositionOnHost(const ClusterSpec& cluster, const TaskId& task);

}  // namespace tutti
