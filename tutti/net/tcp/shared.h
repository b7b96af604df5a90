#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/net/handshake.h"
#include "tutti/net/message/region.h"
#include "tutti/net/message/short_queue.h"
#include "tutti/net/message/stash.h"
#include "tutti/net/poller.h"
#include "tutti/net/tcp/tcp_transport.h"

namespace tutti::net::tcp {

class Link;

// How much one stream may move before the others have their turn.
inline constexpr size_t kBurstBytes = size_t{1} << 20;

// What all links of a transport work with.
struct Shared {
  TcpOptions options;
  Identity identity;
  Poller poller;
  std::shared_ptr<message::RegionTable> regions = std::make_shared<message::RegionTable>();
  message::Stash stash;
  message::ShortQueue shorts;
  std::vector<Link*> breaking;  // links to be closed when the events are handled
  bool moved = false;           // since Progress began
};

}  // namespace tutti::net::tcp
