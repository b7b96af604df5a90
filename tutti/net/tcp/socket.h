#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The few things that are done with sockets, each with an error that says what was tried.
namespace tutti::net::tcp {

// A file descriptor that is closed when its owner goes.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

// "10.0.0.7:4711", "[fe80::1]:4711", "localhost:4711". Looks names up, which may take a while.
absl::StatusOr<SocketAddress> ResolveEndpoint(std::string_view endpoint);
// The same the other way, always with numbers.
std::string ToString(const SocketAddress& address);

// A non-blocking listener at host and port; port 0 takes a free one. `bound` is where it listens.
absl::StatusOr<Fd> ListenAt(std::string_view host, int port, SocketAddress* bound);
// Begins to connect, without waiting. The socket is writable when the outcome is known.
absl::StatusOr<Fd> StartConnecting(const SocketAddress& address);
// The outcome: OK, or UNAVAILABLE with the cause.
absl::Status ConnectOutcome(int fd);
// What every data connection has: TCP_NODELAY, because frames are written whole.
void PrepareDataSocket(int fd);

// "Connection refused"
std::string ErrnoText(int error);

}  // namespace tutti::net::tcp
