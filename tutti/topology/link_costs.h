#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/topology/fabric.h"

namespace tutti::topology {

// Something that carries one byte after another, and that messages share. Which one of its kind is
// meant follows from the sender and the receiver: `kRankOut` is the sender's, `kHostIn` that of the
// receiver's host.
enum class Place : uint8_t {
  kRankOut,     // the port through which a rank sends
  kRankIn,      // and the one through which it receives
  kHostOut,     // the link of a host, shared by its ranks
  kHostIn,      //
  kRackOut,     // the link of a rack, shared by its hosts
  kRackIn,      //
  kSpine,       // shared by all
  kHostMemory,  // the receiver's host's memory, shared by its ranks
};

struct Hop {
  Place place;
  double seconds_per_byte = 0;
};

// What a message meets: hops in the order of the journey, and the time that its first byte takes.
struct Route {
  double latency = 0;
  std::vector<Hop> hops;
};

// What it takes to move and to add bytes between the ranks of a group, in seconds; given (from a
// Fabric) or measured (by the tuner). This is what the cost of a schedule is predicted from.
struct LinkCosts {
  int ranks = 1;
  std::vector<int> hosts;  // of each rank, numbered from 0
  std::vector<int> racks;  // of each rank, numbered from 0

  // By how far apart two ranks are: routes[0] within a host, [1] within a rack, [2] between racks.
  // With by_pair, the route from a to b is routes[by_pair[a * ranks + b]] instead.
  std::vector<Route> routes;
  std::vector<int32_t> by_pair;

  double reduce = 0;       // per byte that a rank adds to what it has
  double memory = 0;       // per byte that a rank reads or writes in its own or a peer's memory
  double host_memory = 0;  // the same, of the memory that all ranks of a host share

  // REQUIRES: 0 <= from, to < ranks, from != to.
  const Route& Between(int from, int to) const {
    if (!by_pair.empty()) {
      return routes[static_cast<size_t>(by_pair[static_cast<size_t>(from) * ranks + to])];
    }
    if (hosts[from] == hosts[to]) return routes[0];
    return routes[racks[from] == racks[to] ? 1 : 2];
  }
};

// Ranks on hosts of their own, with equal links: each sends and receives at `link`, both at once.
LinkCosts UniformCosts(int ranks, Link link, double reduce_bytes_per_second = 0);

// Ranks on hosts (`hosts` has any numbers). Within a host every rank has a port of its own; between
// hosts the ranks of a host share its link.
LinkCosts TwoLevelCosts(std::span<const int> hosts, Link within, Link between,
                        double reduce_bytes_per_second = 0);

// From a link per pair: links[a * ranks + b] is from a to b (the diagonal is not read). Ports are
// shared as in TwoLevelCosts. REQUIRES: links.size() == hosts.size()^2.
LinkCosts PairCosts(std::span<const int> hosts, std::span<const Link> links,
                    double reduce_bytes_per_second = 0);

// The first `ranks` devices of a fabric. INVALID_ARGUMENT if it has fewer.
absl::StatusOr<LinkCosts> FabricCosts(const Fabric& fabric, int ranks);

}  // namespace tutti::topology
