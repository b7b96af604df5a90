#pragma once

#include <memory>
#include <vector>

#include "tutti/net/transport.h"

namespace tutti::net {

// Ranks of one process, joined by its memory. They may be driven by different threads, each rank as
// Transport says. All links are kMemory; what one rank sends another reads in place, whether it was
// allocated by the transport or not. A rank whose transport is destroyed has left on purpose: the
// others see that when they want something of it.
class LoopbackTransport {
 public:
  static std::vector<std::unique_ptr<Transport>> Make(int ranks);
};

}  // namespace tutti::net
