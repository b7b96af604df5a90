#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/cluster/control.h"

namespace tutti {

// The gRPC side of a process that calls others: channels on sockets that are connected and have
// passed the handshake, and one thread on which answers come. Channels may outlive it, and fail
// then. Thread-safe.
class ControlClient {
 public:
  ControlClient();
  ~ControlClient();  // open calls end with UNAVAILABLE

  // A channel on a connected socket, which belongs to gRPC from here on. `peer` begins the texts of
  // errors. `lost` is called once, when the process at the other end is gone, but not for a channel
  // that was destroyed before.
  std::shared_ptr<ControlChannel> Adopt(int fd, const net::TaskIdentity& self, std::string peer,
                                        std::function<void(absl::Status)> lost);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace tutti
