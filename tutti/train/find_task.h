#pragma once

#include <optional>

#include "tutti/cluster/environment/launch_environment.h"
#include "tutti/cluster/tf_config.h"

namespace tutti {

struct RunConfig;
struct StrategyDef;

// The place of this process in its job, and nothing if it is alone. TF_CONFIG says it; processes
// that another launcher has numbered meet, and divide the roles as --ps and --evaluator say. Sets
// config.tf_config, and for what comes later TUTTI_JOB_TOKEN and the port of this task
// (net/inherited_socket.h). Says in a line on stderr who started the process. To be called before
// there are other threads. Throws Error.
std::optional<TaskConfig> FindTask(const LaunchEnvironment& environment, RunConfig& config);

// Throws Error (kInvalidArgument) when --ps and --evaluator cannot be: alone, with TF_CONFIG, with
// too few processes, or with a strategy that has no work for them.
void CheckRoleFlags(const LaunchEnvironment& environment, const StrategyDef& strategy,
                    const RunConfig& config);

}  // namespace tutti
