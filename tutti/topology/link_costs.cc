#include "tutti/topology/link_costs.h"

#include <algorithm>
#include <numeric>

#include "tutti/base/status.h"

namespace tutti::topology {
namespace {

double Inverse(double rate) { return rate > 0 ? 1 / rate : 0; }

// Any numbers become 0, 1, 2... in the order of their first appearance.
std::vector<int> Renumbered(std::span<const int> numbers) {
  std::vector<int> seen;
  std::vector<int> result;
  result.reserve(numbers.size());
  for (const int number : numbers) {
    const auto found = std::find(seen.begin(), seen.end(), number);
    result.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(number);
  }
  return result;
}

Route WithinHost(const Link& link) {
  const double cost = Inverse(link.bytes_per_second);
  return {link.latency, {{Place::kRankOut, cost}, {Place::kRankIn, cost}}};
}

Route BetweenHosts(const Link& link) {
  const double cost = Inverse(link.bytes_per_second);
  return {link.latency, {{Place::kHostOut, cost}, {Place::kHostIn, cost}}};
}

// All but the routes.
LinkCosts OnHosts(std::span<const int> hosts, double reduce_bytes_per_second) {
  LinkCosts costs;
  costs.ranks = static_cast<int>(hosts.size());
  costs.hosts = Renumbered(hosts);
  costs.racks.assign(hosts.size(), 0);
  costs.reduce = Inverse(reduce_bytes_per_second);
  return costs;
}

}  // namespace

LinkCosts UniformCosts(int ranks, Link link, double reduce_bytes_per_second) {
  std::vector<int> hosts(static_cast<size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  LinkCosts costs;
  costs.ranks = ranks;
  costs.racks.assign(hosts.size(), 0);
  costs.hosts = std::move(hosts);
  costs.routes = {WithinHost(link), BetweenHosts(link), BetweenHosts(link)};
  costs.reduce = Inverse(reduce_bytes_per_second);
  return costs;
}

LinkCosts TwoLevelCosts(std::span<const int> hosts, Link within, Link between,
                        double reduce_bytes_per_second) {
  LinkCosts costs = OnHosts(hosts, reduce_bytes_per_second);
  costs.routes = {WithinHost(within), BetweenHosts(between), BetweenHosts(between)};
  costs.memory = Inverse(within.bytes_per_second);
  return costs;
}

LinkCosts PairCosts(std::span<const int> hosts, std::span<const Link> links,
                    double reduce_bytes_per_second) {
  LinkCosts costs = OnHosts(hosts, reduce_bytes_per_second);
  const int n = costs.ranks;
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      const Link& link = links[static_cast<size_t>(from) * n + to];
      costs.by_pair.push_back(static_cast<int32_t>(costs.routes.size()));
      costs.routes.push_back(costs.hosts[from] == costs.hosts[to] ? WithinHost(link)
                                                                  : BetweenHosts(link));
    }
  }
  return costs;
}

absl::StatusOr<LinkCosts> FabricCosts(const Fabric& fabric, int ranks) {
  if (ranks < 1 || ranks > fabric.devices()) {
    return InvalidArgument(
        "{} ranks do not fit on the topology \"{}\": it has {} devices ({} a host, {} hosts a "
        "rack, {} racks); ask for 1 to {}",
        ranks, fabric.name, fabric.devices(), fabric.devices_per_host, fabric.hosts_per_rack,
        fabric.racks, fabric.devices());
  }
  LinkCosts costs;
  costs.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    costs.hosts.push_back(fabric.HostOf(rank));
    costs.racks.push_back(fabric.RackOf(rank));
  }
  const double host = Inverse(fabric.host_link.bytes_per_second);
  const double rack = Inverse(fabric.rack_link.bytes_per_second);
  const double spine = Inverse(fabric.spine.bytes_per_second);
  Route in_rack = BetweenHosts(fabric.host_link);
  in_rack.latency = 2 * fabric.host_link.latency + fabric.rack_link.latency;
  Route between_racks;
  between_racks.latency =
      2 * fabric.host_link.latency + 2 * fabric.rack_link.latency + fabric.spine.latency;
  between_racks.hops = {{Place::kHostOut, host},
                        {Place::kRackOut, rack},
                        {Place::kSpine, spine},
                        {Place::kRackIn, rack},
                        {Place::kHostIn, host}};
  costs.routes = {WithinHost(fabric.device_link), in_rack, between_racks};
  costs.memory = Inverse(fabric.device_link.bytes_per_second);
  costs.reduce = Inverse(fabric.reduce_bytes_per_second);
  return costs;
}

}  // namespace tutti::topology
