#pragma once

#include <memory>
#include <vector>

#include "tutti/collective/communicator.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// Communicators over transports that exist already, all in this process and joined with each other:
// transports[r] is that of rank r. There is no control plane: what one rank finds out, all are told
// directly. `hosts` says which ranks reach each other's memory; empty: all do. Tests give faulty
// transports, and hosts as they like.
std::vector<std::unique_ptr<Communicator>> JoinInProcess(
    std::vector<std::unique_ptr<net::Transport>> transports, std::vector<int> hosts = {},
    double late_seconds = 5);

}  // namespace tutti::collective
