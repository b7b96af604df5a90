#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/net/event_loop.h"
#include "tutti/net/shm/packet_socket.h"
#include "tutti/net/socket.h"

namespace tutti::net::link {

// Where tasks of this host come to leave TCP: a Unix socket under an abstract name, to which a task
// sends one packet, a secret that it was told over TCP, with one end of a pair of Unix sockets
// attached. Not thread-safe: lives on the loop's thread, to the loop's end.
class JoiningPlace {
 public:
  // `joined` gets the secret and the socket that came with it.
  using Joined = std::function<void(const std::string& secret, Socket socket)>;

  JoiningPlace(EventLoop* loop, Joined joined) : loop_(loop), joined_(std::move(joined)) {}
  ~JoiningPlace();

  absl::Status Open(const std::string& name);

 private:
  struct Guest {
    shm::FileDescriptor socket;
    uint64_t watch = 0;
  };
  void Accept();
  void Read(std::list<Guest>::iterator guest);

  EventLoop* const loop_;
  const Joined joined_;
  shm::FileDescriptor listener_;
  uint64_t watch_ = 0;
  std::list<Guest> guests_;  // that have not sent their packet
};

// The other side: leaves the far end of a pair of sockets at the place of that name, and gives the
// near end.
absl::StatusOr<Socket> JoinAt(const std::string& name, const std::string& secret);

}  // namespace tutti::net::link
