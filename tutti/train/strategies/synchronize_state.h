#pragma once

#include "tutti/client/session.h"
#include "tutti/train/strategies/peers.h"

namespace tutti {

// Gives the variables of `graph` the values that worker 0 has in its `session`: see
// synchronize_state.cc. All workers call it, with graphs whose variables are alike. Throws Error.
void SynchronizeVariables(Graph& graph, Session& session, Peers& peers);

}  // namespace tutti
