#include "tutti/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/inherited_socket.h"

namespace tutti::net {
namespace {

constexpr int kBacklog = 1024;

absl::StatusOr<Socket> MakeStream(const Address& address) {
  Socket made(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.valid()) return made;
  return NoDescriptor(fmt::format("no socket for {}", ToString(address)), errno);
}

}  // namespace

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string ErrnoText(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

absl::Status NoDescriptor(std::string_view what, int error) {
  if (error == EMFILE) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return ResourceExhausted("{}: {}; process {} may open {}: raise its limit (ulimit -n)", what,
                             ErrnoText(error), getpid(), limit.rlim_cur);
  }
  if (error == ENFILE) {
    return ResourceExhausted(
        "{}: {}; raise the limit of this machine (fs.file-max), or start fewer tasks on it", what,
        ErrnoText(error));
  }
  return Unavailable("{}: {}", what, ErrnoText(error));
}

int64_t DescriptorsLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  std::error_code error;
  int64_t open = -1;  // the listing itself takes one
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    // The limit is one of numbers: what was opened above it, before it was lowered, takes no room.
    open += std::strtoull(entry->path().filename().c_str(), nullptr, 10) < limit.rlim_cur;
  }
  return error ? -1 : static_cast<int64_t>(limit.rlim_cur) - open;
}

absl::StatusOr<Socket> Listen(const Address& address) {
  if (Socket inherited = TakeInheritedSocket(address); inherited.valid()) return inherited;
  TUTTI_ASSIGN_OR_RETURN(Socket made, MakeStream(address));
  // A port that a dead process used is free at once; one that a live process listens at is not.
  const int on = 1;
  setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(made.fd(), address.get(), address.length) != 0 || listen(made.fd(), kBacklog) != 0) {
    return Unavailable("cannot listen at {}: {}", ToString(address), ErrnoText(errno));
  }
  return made;
}

absl::StatusOr<Socket> StartConnect(const Address& address) {
  TUTTI_ASSIGN_OR_RETURN(Socket made, MakeStream(address));
  if (connect(made.fd(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return Unavailable("{}", ErrnoText(errno));
  }
  return made;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return Unavailable("{}", ErrnoText(error));
  // A connect to a port of this host that nobody listens at can be given that very port as its own,
  // and then has connected to itself.
  const absl::StatusOr<Address> local = LocalAddress(fd), peer = PeerAddress(fd);
  if (local.ok() && peer.ok() && ToString(*local) == ToString(*peer)) {
    return Unavailable("connection refused");
  }
  return absl::OkStatus();
}

absl::StatusOr<Socket> Connect(const Address& address, int64_t deadline_nanos) {
  TUTTI_ASSIGN_OR_RETURN(Socket made, StartConnect(address));
  TUTTI_RETURN_IF_ERROR(
      WithPrefix(WaitFor(made.fd(), POLLOUT, deadline_nanos), "no answer to the connection: "));
  TUTTI_RETURN_IF_ERROR(ConnectResult(made.fd()));
  SetNoDelay(made.fd());
  return made;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

IoResult ReadSome(int fd, std::span<std::byte> into) {
  ssize_t got = 0;
  do {
    got = recv(fd, into.data(), into.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return {IoResult::Kind::kMoved, static_cast<size_t>(got), 0};
  if (got == 0) return {IoResult::Kind::kClosed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Kind::kAgain, 0, 0};
  return {IoResult::Kind::kError, 0, errno};
}

IoResult WriteSome(int fd, std::string_view bytes) {
  ssize_t put = 0;
  do {
    put = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (put < 0 && errno == EINTR);
  if (put >= 0) return {IoResult::Kind::kMoved, static_cast<size_t>(put), 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Kind::kAgain, 0, 0};
  return {IoResult::Kind::kError, 0, errno};
}

absl::Status WaitFor(int fd, short events, int64_t deadline_nanos) {
  while (true) {
    const int64_t left = deadline_nanos - NowNanos();
    const int64_t millis =
        std::clamp<int64_t>((left + 999'999) / 1'000'000, 0, std::numeric_limits<int>::max());
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(millis));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Unavailable("poll: {}", ErrnoText(errno));
    if (NowNanos() >= deadline_nanos) return DeadlineExceeded("time is over");
  }
}

absl::Status WriteAll(int fd, std::string_view bytes, int64_t deadline_nanos) {
  while (!bytes.empty()) {
    const IoResult result = WriteSome(fd, bytes);
    if (result.kind == IoResult::Kind::kError) return Unavailable("{}", ErrnoText(result.error));
    if (result.kind == IoResult::Kind::kAgain) {
      TUTTI_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline_nanos));
    }
    bytes.remove_prefix(result.bytes);
  }
  return absl::OkStatus();
}

absl::Status ShakeHands(int fd, Handshake* handshake, int64_t deadline_nanos) {
  std::string out;
  handshake->Start(&out);
  std::array<std::byte, 1024> piece;
  while (true) {
    // A peer that refuses may have closed already; what it said is still there to be read, so a
    // failed write is not the end.
    const absl::Status written = WriteAll(fd, out, deadline_nanos);
    out.clear();
    if (handshake->state() == Handshake::State::kFailed) return handshake->status();
    if (handshake->state() == Handshake::State::kDone) return written;
    const size_t wanted = std::min(handshake->Wants(), piece.size());
    const IoResult result = ReadSome(fd, std::span(piece).first(wanted));
    switch (result.kind) {
      case IoResult::Kind::kMoved: {
        size_t consumed = 0;
        handshake->Feed(std::span(piece).first(result.bytes), &consumed, &out);
        break;
      }
      case IoResult::Kind::kAgain:
        TUTTI_RETURN_IF_ERROR(
            WithPrefix(WaitFor(fd, POLLIN, deadline_nanos), "no answer in the handshake: "));
        break;
      case IoResult::Kind::kClosed:
        return Unavailable("the peer closed the connection in the handshake");
      case IoResult::Kind::kError:
        return Unavailable("the connection broke in the handshake: {}", ErrnoText(result.error));
    }
  }
}

void CloseGently(Socket socket) {
  if (!socket.valid()) return;
  shutdown(socket.fd(), SHUT_WR);
  std::array<std::byte, 16384> piece;
  // Bounded: a peer that goes on sending gets its reset.
  for (int i = 0; i < 64; ++i) {
    if (ReadSome(socket.fd(), piece).kind != IoResult::Kind::kMoved) return;
  }
}

}  // namespace tutti::net
