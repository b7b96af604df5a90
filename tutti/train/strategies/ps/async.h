#pragma once

#include <cstdint>
#include <memory>

#include "tutti/train/strategies/ps/parameter_servers.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {

struct AsyncOptions {
  ServerOptionsOfStrategy common = {};
  int64_t most_lead = -1;            // how many steps a worker may lead the slowest; -1: any
  bool divide_by_staleness = false;  // each gradient, before it is applied
};

// Variables on servers, each worker's gradient applied as it comes: see ps_async.cc.
std::shared_ptr<const Strategy> MakeAsyncStrategy(ParameterServers servers,
                                                  const AsyncOptions& options = {});

// The flags of these strategies, and their values.
std::vector<StrategyFlag> AsyncFlags();
AsyncOptions AsyncOptionsOf(const Launch& launch);

}  // namespace tutti
