#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/cluster/task_status.h"
#include "tutti/runtime/master.h"

// Clients of a cluster: processes that are no task of it and reach it through any of its tasks.
namespace tutti {

struct TargetOptions {
  std::string target;         // "tutti://host:port"
  std::string token;          // that of the cluster; empty: TUTTI_JOB_TOKEN, if that is set
  double start_seconds = 60;  // for how long the task is tried
};

// The master of a session at the task that the target names, with connections of its own.
absl::StatusOr<std::unique_ptr<Master>> MasterAtTarget(const TargetOptions& options,
                                                       const CompileOptions& compile);

// What all tasks of the cluster tell of themselves. `own`, if it is given, receives the name of the
// task at the target.
absl::StatusOr<std::vector<TaskStatus>> StatusOfTarget(const TargetOptions& options,
                                                       std::string* own = nullptr);

// Forgets the variables and queues of a container on all tasks of the cluster. An error names a
// task that could not do it; the others have.
absl::Status ResetTarget(const TargetOptions& options, const std::string& container);

}  // namespace tutti
