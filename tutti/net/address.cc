#include "tutti/net/address.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

absl::Status BadEndpoint(std::string_view text, std::string_view why) {
  return InvalidArgument("'{}' is no address: {}; expected host:port or [IPv6 address]:port",
                         Printable(text), why);
}

const sockaddr_in& Inet(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& Inet6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return BadEndpoint(text, "the bracket is not closed");
    endpoint.host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!port.starts_with(':')) return BadEndpoint(text, "no port");
    port.remove_prefix(1);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return BadEndpoint(text, "no port");
    if (text.find(':', colon + 1) != std::string_view::npos) {
      return BadEndpoint(text, "it has several colons and no brackets");
    }
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (endpoint.host.empty()) return BadEndpoint(text, "no host");
  if (endpoint.host.size() > 255 || endpoint.host.find('\0') != std::string::npos) {
    return BadEndpoint(text, "the host is no name");
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return BadEndpoint(text, "the port is no number from 0 to 65535");
  }
  return endpoint;
}

std::string ToString(const Endpoint& endpoint) {
  const bool bracketed = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", bracketed ? "[" : "", endpoint.host, bracketed ? "]" : "",
                     endpoint.port);
}

uint16_t Address::port() const {
  return ntohs(family() == AF_INET6 ? Inet6(*this).sin6_port : Inet(*this).sin_port);
}

std::string Address::host() const {
  if (family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&Inet6(*this).sin6_addr)) {
    const uint8_t* bytes = Inet6(*this).sin6_addr.s6_addr;
    return fmt::format("{}.{}.{}.{}", bytes[12], bytes[13], bytes[14], bytes[15]);
  }
  char host[NI_MAXHOST];
  if (getnameinfo(get(), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  return host;
}

bool Address::wildcard() const {
  return family() == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&Inet6(*this).sin6_addr)
                              : Inet(*this).sin_addr.s_addr == htonl(INADDR_ANY);
}

std::string ToString(const Address& address) {
  return ToString(Endpoint{address.host(), address.port()});
}

absl::StatusOr<std::vector<Address>> Resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error == EAI_NONAME || error == EAI_NODATA) {
    return NotFound("{}: name not found", Printable(endpoint.host));
  }
  if (error != 0) {
    return Unavailable("{}: the name could not be looked up: {}", Printable(endpoint.host),
                       error == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address;
    address.length = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address);
  }
  if (addresses.empty()) {
    return NotFound("{}: the name has no IP address", Printable(endpoint.host));
  }
  return addresses;
}

namespace {

using NameCall = int (*)(int, sockaddr*, socklen_t*);
absl::StatusOr<Address> EndOf(int fd, NameCall call, std::string_view which) {
  Address address;
  address.length = sizeof(address.storage);
  if (call(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return Unavailable("the {} address of a socket is not known: {}", which, ErrnoText(errno));
  }
  return address;
}

}  // namespace

absl::StatusOr<Address> LocalAddress(int fd) { return EndOf(fd, getsockname, "local"); }
absl::StatusOr<Address> PeerAddress(int fd) { return EndOf(fd, getpeername, "peer's"); }

absl::StatusOr<std::string> AddressTowards(const Address& peer) {
  Socket probe(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.fd(), peer.get(), peer.length) != 0) {
    return Unavailable("no route to {}: {}", peer.host(), ErrnoText(errno));
  }
  TUTTI_ASSIGN_OR_RETURN(const Address local, LocalAddress(probe.fd()));
  return local.host();
}

}  // namespace tutti::net
