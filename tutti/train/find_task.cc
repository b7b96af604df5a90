#include "tutti/train/find_task.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/cluster/environment/meet_tasks.h"
#include "tutti/cluster/environment/roles.h"
#include "tutti/net/inherited_socket.h"
#include "tutti/train/cancelled_by_signal.h"
#include "tutti/train/run_config.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

bool IsNumbered(const LaunchEnvironment& environment) {
  return environment.kind != LaunchKind::kAlone && environment.kind != LaunchKind::kTfConfig;
}

}  // namespace

void CheckRoleFlags(const LaunchEnvironment& environment, const StrategyDef& strategy,
                    const RunConfig& config) {
  if (config.ps == 0 && !config.evaluator) return;
  if (!IsNumbered(environment)) {
    ThrowInvalidArgument(fmt::format(
        "--ps and --evaluator divide the processes that mpirun, srun or torchrun started, but this "
        "one was started by {}; leave them out{}",
        NameOf(environment.kind),
        environment.kind == LaunchKind::kAlone ? ", or use tutti run --ps and --evaluator" : ""));
  }
  if (config.ps > 0 && !strategy.others.contains("ps")) {
    ThrowInvalidArgument(
        fmt::format("--ps is given, but --strategy {} has no work for that role", strategy.name));
  }
  ThrowIfError(DivideRoles(environment.size, int(config.ps), config.evaluator).status());
}

std::optional<TaskConfig> FindTask(const LaunchEnvironment& environment, RunConfig& config) {
  if (environment.kind == LaunchKind::kTfConfig) {
    config.tf_config = std::getenv("TF_CONFIG");
    return ValueOrThrow(ParseTfConfig(config.tf_config));
  }
  if (!IsNumbered(environment)) return std::nullopt;
  FormatTo(stderr, "{}: started by {}: {}\n", config.program, NameOf(environment.kind),
           environment.found);
  if (environment.size == 1) return std::nullopt;
  const CancelledBySignal cancelled;
  MetTasks met = ValueOrThrow(MeetTasks(environment, {.ps = int(config.ps),
                                                      .evaluator = config.evaluator,
                                                      .timeout_seconds = config.start_timeout,
                                                      .cancellation = cancelled.get()}));
  config.tf_config = ToTfConfig(met.config);
  ::setenv("TUTTI_JOB_TOKEN", met.token.c_str(), 1);
  // The listener of this task takes it over.
  ::setenv(net::kInheritedSocket, std::to_string(met.port.Release()).c_str(), 1);
  return met.config;
}

}  // namespace tutti
