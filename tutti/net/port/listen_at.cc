#include "tutti/net/port/listen_at.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"

namespace tutti::net {
namespace {

constexpr int64_t kFirstPause = 10'000'000;
constexpr int64_t kLongestPause = 500'000'000;
constexpr int64_t kLook = 50'000'000;           // between looks whether to stop
constexpr int64_t kPatience = 1'000'000'000;    // before a warning
constexpr int64_t kWarnEvery = 10'000'000'000;  // between two of them

// Can a socket of this host have the address? Where that cannot be found out it is said to.
bool IsOfThisHost(Address address) {
  if (address.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = 0;
  }
  const Socket probe(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return !probe.valid() || bind(probe.fd(), address.get(), address.length) == 0 ||
         errno != EADDRNOTAVAIL;
}

struct Try {
  absl::StatusOr<Socket> socket;
  bool again = false;  // may another one succeed?
};

Try ListenOnce(const Endpoint& endpoint, const ListenOptions& options) {
  const absl::StatusOr<std::vector<Address>> addresses = options.resolve(endpoint);
  if (!addresses.ok()) {
    return {WithPrefix(addresses.status(), "cannot listen at " + ToString(endpoint) + ": "), true};
  }
  Try last{Unavailable("cannot listen at {}: no address", ToString(endpoint)), true};
  bool own = false;  // one of the addresses is of this host
  for (const Address& address : *addresses) {
    absl::StatusOr<Socket> socket = Listen(address);
    if (socket.ok()) return {std::move(socket), false};
    const bool is_own = IsOfThisHost(address);
    // A failure at an address of this host says more than one at another's.
    if (is_own || !own) last.socket = std::move(socket);
    own = own || is_own;
  }
  last.again = !own;
  return last;
}

}  // namespace

absl::StatusOr<Socket> ListenAt(const std::string& where, const ListenOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(where));
  const int64_t begun = NowNanos();
  int64_t pause = kFirstPause, warn_at = begun + kPatience;
  while (true) {
    Try made = ListenOnce(endpoint, options);
    const int64_t now = NowNanos();
    if (made.socket.ok() || !made.again || options.deadline_nanos == 0) {
      return std::move(made.socket);
    }
    const absl::Status& why = made.socket.status();
    if (now >= options.deadline_nanos) {
      return DeadlineExceeded("{}; tried for {:.1f} s", MessageOf(why), double(now - begun) * 1e-9);
    }
    if (now >= warn_at) {
      warn_at = now + kWarnEvery;
      Log(LogLevel::kWarning, "{}; trying on for {:.0f} s", MessageOf(why),
          double(options.deadline_nanos - now) * 1e-9);
    }
    for (int64_t rest = std::min(pause, options.deadline_nanos - now); rest > 0; rest -= kLook) {
      if (options.stopped != nullptr && options.stopped()) {
        return Cancelled("stopped while its own name was tried: {}", MessageOf(why));
      }
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(rest, kLook)));
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace tutti::net
