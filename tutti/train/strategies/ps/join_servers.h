#pragma once

#include <string_view>

#include "tutti/train/strategies/ps/parameter_servers.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {

// The parameter servers of the cluster in TF_CONFIG, of which this process becomes a task: one that
// computes. `strategy` is its name for error messages. Throws Error: kInvalidArgument when there is
// no cluster, or no ps in it.
ParameterServers JoinServers(const Launch& launch, std::string_view strategy);

// What a ps does: it holds variables and runs parts of steps until worker 0 says that the training
// is over. Throws Error (kUnavailable) when the training failed or worker 0 is lost. A request to
// stop is passed on to worker 0, which is served until it has left, lost or not.
void ServeVariables(const Launch& launch);

// The flags that strategies with parameter servers have, and their values.
std::vector<StrategyFlag> ServerFlags();
ServerOptionsOfStrategy ServerOptionsOf(const Launch& launch);

}  // namespace tutti
