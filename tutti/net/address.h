#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti::net {

// A place on the network as people write it: "node7:4711", "10.0.0.7:4711", "[fe80::1]:4711".
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
std::string ToString(const Endpoint& endpoint);  // ParseEndpoint gives it back

// The same as the system calls want it: IPv4 or IPv6.
struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  std::string host() const;  // "10.0.0.7", "fe80::1%eth0"; an IPv4 address inside IPv6 as IPv4
  bool wildcard() const;     // 0.0.0.0 or ::
};
std::string ToString(const Address& address);  // "10.0.0.7:4711", "[::1]:4711"

// The addresses that a name stands for, at least one, the resolver's favourite first. Asks the name
// service and may take as long as that takes (seconds). NOT_FOUND says "name not found".
absl::StatusOr<std::vector<Address>> Resolve(const Endpoint& endpoint);

// The two ends of a socket.
absl::StatusOr<Address> LocalAddress(int fd);
absl::StatusOr<Address> PeerAddress(int fd);

// The address that this host uses towards `peer`, without a port: what its routes say. Sends
// nothing.
absl::StatusOr<std::string> AddressTowards(const Address& peer);

}  // namespace tutti::net
