#pragma once

#include <memory>

#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {

struct SyncOptions {
  ServerOptionsOfStrategy common = {};
  int backups = 0;  // workers that an update does not wait for
};

// Variables on servers, updates from the gradients of all workers but the backups: see ps_sync.cc.
// Throws Error unless there is a server and fewer backups than workers.
std::shared_ptr<const Strategy> MakeSyncStrategy(ParameterServers servers,
                                                 const SyncOptions& options = {});

}  // namespace tutti
