#include "tutti/net/shm/packet_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti::net::shm {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kMostFiles = 4;  // taken from one packet, lest files pile up that nobody asked for

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

absl::StatusOr<Address> AddressOf(const std::string& name) {
  Address address;
  address.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof(address.address.sun_path)) {
    return InvalidArgument("a socket name of {} bytes; it may have 1 to {}", name.size(),
                           sizeof(address.address.sun_path) - 1);
  }
  // A leading zero byte makes the name abstract.
  std::memcpy(address.address.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Transfer TransferOf(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ETOOMANYREFS
             ? Transfer::kLater
             : Transfer::kClosed;
}

}  // namespace

absl::StatusOr<FileDescriptor> ListenOn(const std::string& name) {
  TUTTI_ASSIGN_OR_RETURN(const Address address, AddressOf(name));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.ok()) return NoDescriptor("no Unix socket", errno);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) !=
          0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return Unavailable("cannot listen on a Unix socket: {}", std::strerror(errno));
  }
  return socket;
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& name) {
  TUTTI_ASSIGN_OR_RETURN(const Address address, AddressOf(name));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.ok()) return NoDescriptor("no Unix socket", errno);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) !=
      0) {
    const bool later = TransferOf(errno) == Transfer::kLater;
    return MakeStatus(later ? absl::StatusCode::kUnavailable : absl::StatusCode::kNotFound,
                      "cannot connect to its Unix socket: {}; does its process live, in the same "
                      "network namespace?",
                      std::strerror(errno));
  }
  return socket;
}

absl::StatusOr<FileDescriptor> AcceptFrom(const FileDescriptor& listener) {
  FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.ok() && (errno == EMFILE || errno == ENFILE)) {
    return NoDescriptor("a connection cannot be accepted", errno);
  }
  return socket;
}

absl::StatusOr<Credentials> CredentialsOf(const FileDescriptor& socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Unavailable("cannot tell whose process it is: {}", std::strerror(errno));
  }
  return Credentials{.pid = credentials.pid, .user = credentials.uid};
}

Transfer SendPacket(const FileDescriptor& socket, ConstBytes packet, int fd) {
  iovec part{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Transfer::kDone;
  return TransferOf(errno);
}

Transfer ReceivePacket(const FileDescriptor& socket, Bytes packet, size_t* received,
                       FileDescriptor* file) {
  iovec part{.iov_base = packet.data(), .iov_len = packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t length =
      recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
  if (length < 0) return TransferOf(errno);
  *file = FileDescriptor();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      *file = FileDescriptor(fd);  // of several, all but the last are closed
    }
  }
  if (length == 0) return Transfer::kClosed;
  // The kernel had a file to give and this process no number for it.
  if ((message.msg_flags & MSG_CTRUNC) != 0 && !file->ok()) return Transfer::kNoDescriptor;
  *received = static_cast<size_t>(length);
  return Transfer::kDone;
}

}  // namespace tutti::net::shm
