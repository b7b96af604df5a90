#include "tutti/net/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include "tutti/base/status.h"

namespace tutti::net::tcp {
namespace {

// As many as may wait to be accepted; the kernel caps it at its own limit.
constexpr int kBacklog = 4096;

absl::StatusOr<SocketAddress> Resolve(const std::string& host, int port, bool to_listen) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return Unavailable("host '{}' was not found: {}", host,
                       error == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  return address;
}

}  // namespace

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

absl::StatusOr<SocketAddress> ResolveEndpoint(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  std::string_view host = endpoint.substr(0, colon);
  int port = -1;
  if (colon != std::string_view::npos) {
    const std::string_view digits = endpoint.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size()) port = -1;
  }
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool bare_ipv6 = !bracketed && host.find(':') != std::string_view::npos;
  if (port < 1 || port > 65535 || host.empty() || bare_ipv6) {
    return InvalidArgument(
        "endpoint '{}' is not an address and a port; expected 'host:port' or '[ipv6]:port'",
        endpoint);
  }
  return Resolve(std::string(host), port, /*to_listen=*/false);
}

std::string ToString(const SocketAddress& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.length, host,
                  sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  return address.storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                               : fmt::format("{}:{}", host, port);
}

absl::StatusOr<Fd> ListenAt(std::string_view host, int port, SocketAddress* bound) {
  TUTTI_ASSIGN_OR_RETURN(const SocketAddress address,
                         Resolve(std::string(host), port, /*to_listen=*/true));
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Unavailable("cannot make a socket: {}", ErrnoText(errno));
  // A port that a process left a moment ago can be taken again at once.
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    return Unavailable("cannot listen at {}: {}", ToString(address), ErrnoText(errno));
  }
  bound->length = sizeof(bound->storage);
  if (listen(fd.get(), kBacklog) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound->storage), &bound->length) != 0) {
    return Unavailable("cannot listen at {}: {}", ToString(address), ErrnoText(errno));
  }
  return fd;
}

absl::StatusOr<Fd> StartConnecting(const SocketAddress& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Unavailable("cannot make a socket: {}", ErrnoText(errno));
  PrepareDataSocket(fd.get());
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(fd.get(), to, address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Unavailable("cannot connect: {}", ErrnoText(errno));
  }
  return fd;
}

absl::Status ConnectOutcome(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return Unavailable("cannot connect: {}", ErrnoText(error));
  return absl::OkStatus();
}

void PrepareDataSocket(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace tutti::net::tcp
