#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/collective/communicator.h"
#include "tutti/topology/link_costs.h"

namespace tutti::collective {

// What the links of a job were measured to do, in seconds; 0 where there is no such link.
struct LinkFigures {
  double memory_latency = 0;    // of a message or signal within a host
  double memory_byte = 0;       // of a byte in a message within a host
  double memory_pass = 0;       // of a byte that a core reads or writes in memory
  double host_memory_pass = 0;  // the same when all ranks of the host do so at once
  double socket_latency = 0;    // of a message between hosts
  double socket_byte = 0;
  double reduce_byte = 0;        // of a byte that a core adds to what it has, in its caches
  double large_reduce_byte = 0;  // the same where they do not hold the data
  bool operator==(const LinkFigures&) const = default;
};

std::string ToText(const LinkFigures& figures);
// INVALID_ARGUMENT for anything that ToText does not write.
absl::StatusOr<LinkFigures> ParseLinkFigures(std::string_view text);

// Measures. All ranks call it at the same time; `hosts` is the host of each. Takes up to about
// 50 ms on a quiet machine: large messages are left out where small ones are slow.
absl::StatusOr<LinkFigures> ProbeLinks(Communicator& communicator, std::span<const int> hosts);

// The costs of links with these figures between ranks on `hosts`, for an operation on so many
// bytes: what a core does with them depends on whether its caches hold them.
topology::LinkCosts CostsOf(const LinkFigures& figures, std::span<const int> hosts, int64_t bytes);

}  // namespace tutti::collective
