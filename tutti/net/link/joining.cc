#include "tutti/net/link/joining.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

constexpr size_t kMostGuests = 256;
constexpr size_t kMostBytes = 256;

}  // namespace

JoiningPlace::~JoiningPlace() {
  loop_->Forget(watch_);
  for (const Guest& guest : guests_) loop_->Forget(guest.watch);
}

absl::Status JoiningPlace::Open(const std::string& name) {
  TUTTI_ASSIGN_OR_RETURN(listener_, shm::ListenOn(name));
  TUTTI_ASSIGN_OR_RETURN(watch_,
                         loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); }));
  return absl::OkStatus();
}

// Anybody of this host can come here, so those who do not speak at once are bounded: the oldest
// goes.
void JoiningPlace::Accept() {
  absl::StatusOr<shm::FileDescriptor> socket = shm::AcceptFrom(listener_);
  if (!socket.ok() && !guests_.empty()) {
    loop_->Forget(guests_.front().watch);
    guests_.pop_front();
    return;
  }
  if (!socket.ok() || !socket->ok()) return;
  if (guests_.size() >= kMostGuests) {
    loop_->Forget(guests_.front().watch);
    guests_.pop_front();
  }
  const auto guest = guests_.insert(guests_.end(), Guest{.socket = *std::move(socket)});
  const absl::StatusOr<uint64_t> watch =
      loop_->Watch(guest->socket.get(), EPOLLIN, [this, guest](uint32_t) { Read(guest); });
  if (watch.ok()) {
    guest->watch = *watch;
  } else {
    guests_.erase(guest);
  }
}

void JoiningPlace::Read(std::list<Guest>::iterator guest) {
  std::array<std::byte, kMostBytes> packet;
  size_t bytes = 0;
  shm::FileDescriptor file;
  const shm::Transfer transfer = shm::ReceivePacket(guest->socket, packet, &bytes, &file);
  if (transfer == shm::Transfer::kLater) return;
  loop_->Forget(guest->watch);
  guests_.erase(guest);
  if (transfer != shm::Transfer::kDone || bytes > packet.size() || !file.ok()) return;
  joined_(std::string(AsText(std::span(packet).first(bytes))), Socket(file.Release()));
}

absl::StatusOr<Socket> JoinAt(const std::string& name, const std::string& secret) {
  TUTTI_ASSIGN_OR_RETURN(const shm::FileDescriptor there, shm::ConnectTo(name));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return NoDescriptor("no pair of sockets", errno);
  }
  Socket near(ends[0]);
  const Socket far(ends[1]);
  if (shm::SendPacket(there, AsBytes(secret), far.fd()) != shm::Transfer::kDone) {
    return Unavailable("the pair of sockets could not be passed on");
  }
  return near;
}

}  // namespace tutti::net::link
