#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/communicator.h"
#include "tutti/net/coordination/star.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// The links of a rank to all others, and where they are.
struct JobLinks {
  std::unique_ptr<net::Transport> transport;
  // The host of each rank, numbered from 0 in the order of their first ranks. Ranks that share one
  // reach each other's memory; where only sockets may be used, every rank is a host of its own.
  std::vector<int> hosts;
};

// The transports of a job, by name: shm (one host only), tcp and ucx are used between all ranks;
// auto is shm within a host and tcp between hosts, shm+ucx the same with ucx. INVALID_ARGUMENT for
// another name, UNIMPLEMENTED for one that this build does not have.
absl::Status CheckTransport(std::string_view name);

// Opens this rank's endpoints, exchanges them through the star, and connects: memory within a host
// and sockets between, or what options.transport asks for. Over TCP rank 0 is reached at the star's
// port, and the others at options.bootstrap.endpoints, or at any port if there are none. All ranks
// call it at the same time.
absl::StatusOr<JobLinks> OpenLinks(const CommunicatorOptions& options, net::Star& star);

}  // namespace tutti::collective
