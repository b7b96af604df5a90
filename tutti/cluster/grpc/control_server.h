#pragma once

#include <memory>

#include "tutti/cluster/control.h"

namespace tutti {

// The gRPC side of a task that answers control calls. It has no port: it is given sockets that are
// connected and have passed the handshake. One thread takes the calls. Thread-safe.
class ControlServer {
 public:
  explicit ControlServer(ControlHandler* handler);  // which outlives the server
  // Ends all connections. REQUIRES: the handler answers every call that it was given, if need be
  // because what they wait for was ended before.
  ~ControlServer();

  // Answers calls on a connected socket, which belongs to gRPC from here on.
  void Adopt(int fd);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tutti
