#include "tutti/net/port/handshake_io.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti::net {
namespace {

// A handshake has some hundred bytes, which always fit into the buffers of a fresh socket; one that
// takes only a part of them is broken.
absl::Status SendWhole(int fd, const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return Unavailable("cannot send the handshake: {}",
                     sent < 0 ? ErrnoText(errno) : "the socket took only a part of it");
}

}  // namespace

// A peer that has given up the link says so when a further stream is made; that is no other than
// finding it gone.
absl::Status HandshakeIo::Failure() const {
  const absl::Status status = handshake_.status();
  if (handshake_.refusal() != Refusal::kNotAdmitted) return status;
  return Unavailable("{}", MessageOf(status));
}

absl::Status HandshakeIo::Start(int fd) {
  std::string out;
  handshake_.Start(&out);
  return SendWhole(fd, out);
}

absl::Status HandshakeIo::Continue(int fd) {
  while (handshake_.state() == Handshake::State::kMore) {
    std::array<std::byte, 1024> bytes;
    // Never reads past the end: what follows belongs to the frames.
    const size_t wanted = std::min(bytes.size(), handshake_.Wants());
    const ssize_t count = recv(fd, bytes.data(), wanted, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (count < 0) return Unavailable("lost during the handshake: {}", ErrnoText(errno));
    if (count == 0) return Unavailable("closed by the other end during the handshake");
    std::string out;
    size_t consumed = 0;
    handshake_.Feed({bytes.data(), static_cast<size_t>(count)}, &consumed, &out);
    const absl::Status sent = SendWhole(fd, out);
    if (handshake_.state() == Handshake::State::kFailed) return Failure();
    TUTTI_RETURN_IF_ERROR(sent);
  }
  return absl::OkStatus();
}

}  // namespace tutti::net
