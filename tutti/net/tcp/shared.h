#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tutti/net/handshake.h"
#include "tutti/net/tcp/poller.h"
#include "tutti/net/tcp/region.h"
#include "tutti/net/tcp/tcp_transport.h"

namespace tutti::net::tcp {

class Link;

// How much one stream may move before the others have their turn.
inline constexpr size_t kBurstBytes = size_t{1} << 20;

// Of what a peer may make this rank keep, half is for messages that came at once, the other for
// announcements and short messages, which are small.
inline uint64_t EagerWindow(const TcpOptions& options) { return options.max_kept_bytes / 2; }

// What all links of a transport work with.
struct Shared {
  TcpOptions options;
  Identity identity;
  Poller poller;
  std::shared_ptr<RegionTable> regions = std::make_shared<RegionTable>();
  std::deque<Transport::ShortMessage> shorts;  // that have arrived
  std::vector<Link*> breaking;                 // links to be closed when the events are handled
  bool moved = false;                          // since Progress began
};

}  // namespace tutti::net::tcp
