#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/socket.h"

namespace tutti::net {

struct ListenOptions {
  // Until when (NowNanos) a name is tried again that does not resolve yet, or not yet to this host.
  // 0: one try.
  int64_t deadline_nanos = 0;
  std::function<bool()> stopped = nullptr;  // looked at between tries: true ends them
  std::function<absl::StatusOr<std::vector<Address>>(const Endpoint&)> resolve = Resolve;
};

// Listens at "host:port", with the first address of the host that can be had. A process may be
// started before the name service knows its name, as in Kubernetes, or while it still gives the
// address of the host where the process ran before: both are tried again until the deadline, with a
// warning when it takes long. A port that is in use is told at once.
//
// DEADLINE_EXCEEDED after the deadline (UNAVAILABLE or NOT_FOUND where there is none), CANCELLED
// where it was stopped.
absl::StatusOr<Socket> ListenAt(const std::string& where, const ListenOptions& options = {});

}  // namespace tutti::net
