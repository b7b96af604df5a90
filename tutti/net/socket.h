#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/address.h"
#include "tutti/net/handshake.h"

namespace tutti::net {

// Owns a file descriptor. Everything here makes them non-blocking and closed in programs that this
// one executes.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Socket() { Close(); }

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

// An errno in words, as part of a sentence: "connection refused".
std::string ErrnoText(int error);

// What a call that makes a descriptor failed with: RESOURCE_EXHAUSTED that names the limit of open
// files where that is reached, else UNAVAILABLE. `what` begins the sentence: "no socket".
absl::Status NoDescriptor(std::string_view what, int error);
// How many more descriptors this process may open, as far as the system tells; -1: not known.
int64_t DescriptorsLeft();

// A listening socket: the one that a launcher has opened for this task (inherited_socket.h) if it
// is at this address, else a new one. Errors say where and why.
absl::StatusOr<Socket> Listen(const Address& address);

// A TCP connection on its way. It is there, or has failed, when the socket becomes writable;
// ConnectResult tells which.
absl::StatusOr<Socket> StartConnect(const Address& address);
absl::Status ConnectResult(int fd);
// The same with waiting. `deadline_nanos` is a time of NowNanos, here and below.
absl::StatusOr<Socket> Connect(const Address& address, int64_t deadline_nanos);

// Small messages leave at once.
void SetNoDelay(int fd);

// What one call to read or write has done.
struct IoResult {
  enum class Kind : uint8_t { kMoved, kAgain, kClosed, kError };
  Kind kind;
  size_t bytes = 0;
  int error = 0;  // errno
};
IoResult ReadSome(int fd, std::span<std::byte> into);
IoResult WriteSome(int fd, std::string_view bytes);  // never raises SIGPIPE

// Waits until poll(2) reports one of `events` or an error. DEADLINE_EXCEEDED when it is too late.
absl::Status WaitFor(int fd, short events, int64_t deadline_nanos);
absl::Status WriteAll(int fd, std::string_view bytes, int64_t deadline_nanos);

// Drives a handshake over a connected stream socket of any family, and reads not one byte more.
absl::Status ShakeHands(int fd, Handshake* handshake, int64_t deadline_nanos);

// Closes so that what was written still reaches the peer: unread bytes in the receive buffer would
// turn the close into a reset, so they are read first.
void CloseGently(Socket socket);

}  // namespace tutti::net
