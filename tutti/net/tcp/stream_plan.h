#pragma once

#include "tutti/net/tcp/tcp_transport.h"

namespace tutti::net::tcp {

// What bulk to one peer goes through.
struct StreamPlan {
  int streams = 1;
  int send_buffer = 0;  // bytes of each stream's socket; 0: as the system likes
  bool operator==(const StreamPlan&) const = default;
};

// Within a host, bytes under way lie in its caches as long as they are few; the system's own choice
// of a buffer grows to megabytes. `tutti bench allreduce --transport tcp`, 2 ranks, one stream,
// each in one interleaved run: 64 MB, 1.08 GB/s with 128 KB, 1.54 with 256 KB, 1.46 with 512 KB; 16
// MB on a busier machine, 0.71 with the system's choice, 1.01 with 512 KB.
inline StreamPlan PlanStreams(const TcpOptions& options, bool on_this_host) {
  if (on_this_host) return {.streams = options.streams_in_host, .send_buffer = 256 << 10};
  return {.streams = options.streams, .send_buffer = 0};
}

}  // namespace tutti::net::tcp
