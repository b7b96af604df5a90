#include "tutti/net/inherited_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tutti::net {
namespace {

// Once for the life of the process: the number may be another descriptor's afterwards.
std::atomic<bool> taken{false};

int NumberFromEnvironment() {
  const char* const value = std::getenv(kInheritedSocket);
  if (value == nullptr) return -1;
  const std::string_view text = value;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

// The variable may have come down to a process that does not have the descriptor any more.
bool Listens(int fd) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens == 1;
}

bool Serves(const Address& bound, const Address& wanted) {
  if (bound.port() != wanted.port()) return false;
  return bound.wildcard() || wanted.wildcard() || bound.host() == wanted.host();
}

}  // namespace

Socket TakeInheritedSocket(const Address& address) {
  const int fd = NumberFromEnvironment();
  if (fd < 0 || taken.load() || !Listens(fd)) return Socket();
  const absl::StatusOr<Address> bound = LocalAddress(fd);
  if (!bound.ok() || !Serves(*bound, address)) return Socket();
  if (taken.exchange(true)) return Socket();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return Socket(fd);
}

}  // namespace tutti::net
