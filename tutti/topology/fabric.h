#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tutti::topology {

// What carries bytes: how many a second, each way, and how long the first one takes to pass.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  // seconds
  bool operator==(const Link&) const = default;
};

// A cluster as its builder would sketch it: devices in hosts, hosts in racks, racks under a spine.
//
//   device -- device      within a host: over `device_link`, one port a device
//   host -- rack switch   one `host_link` a host, shared by its devices
//   rack -- spine         one `rack_link` a rack, shared by its hosts
//   spine                 `spine` is what all racks together can exchange
//
// A message between hosts of a rack passes two host links and the rack's switch; between racks, two
// host links, two rack links and the spine. Latencies of all that it passes add up; `rack_link` has
// that of the switch, `host_link` that of the cable and the card.
struct Fabric {
  std::string name;
  int devices_per_host = 1;
  Link device_link;
  double reduce_bytes_per_second = 0;  // at which a device adds what came; 0: in no time
  int hosts_per_rack = 1;
  Link host_link;
  int racks = 1;
  Link rack_link;
  Link spine;

  // An example to cost on it, where the file has one.
  int64_t parameters = 0;
  int bytes_per_parameter = 0;
  int replicas = 0;

  int devices() const { return devices_per_host * hosts_per_rack * racks; }
  // Ranks fill host after host, rack after rack.
  int HostOf(int rank) const { return rank / devices_per_host; }
  int RackOf(int rank) const { return HostOf(rank) / hosts_per_rack; }
  bool operator==(const Fabric&) const = default;
};

// Reads a fabric from TOML:
//
//   name = "two racks"
//   [device]               # in a host; `count` 1 and no link if it is left out
//   count = 8
//   bandwidth = "400GB/s"
//   latency = "2us"
//   reduce = "200GB/s"     # optional
//   [host]                 # in a rack
//   count = 4
//   bandwidth = "100Gbit/s"
//   latency = "5us"
//   [rack]                 # optional: one rack, whose switch takes no time
//   count = 2
//   bandwidth = "400Gbit/s"
//   latency = "1us"
//   [spine]                # needed where there are several racks
//   bandwidth = "800Gbit/s"
//   latency = "1us"
//   [model]                # optional: the example that belongs to it
//   parameters = "175G"
//   dtype = "float32"      # or float16, bfloat16, float64
//   replicas = 3
//
// An error is an INVALID_ARGUMENT that names file and line, the key, what was found and what was
// expected. `file` is used for messages only.
absl::StatusOr<Fabric> ParseFabric(std::string_view text, std::string_view file);

// NOT_FOUND if there is no such file.
absl::StatusOr<Fabric> ReadFabric(const std::string& path);

}  // namespace tutti::topology
