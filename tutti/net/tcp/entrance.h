#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/net/handshake.h"
#include "tutti/net/poller.h"
#include "tutti/net/port/dial.h"
#include "tutti/net/socket.h"

namespace tutti::net::tcp {

// The way into a TcpTransport that does not listen itself: whoever has the port accepts the
// connections, shakes hands, and gives them here. They wait until the transport takes them. It
// outlives the transport, and refuses everybody from then on. Thread-safe.
class Entrance {
 public:
  explicit Entrance(Poller* poller) : poller_(poller) {}

  // For who has the port: as Handshake::Admit, and after the handshake.
  Refusal Admit(const Identity& peer, std::string* why) const;
  void Give(const Identity& peer, Socket socket);

  // For the transport, whose poller is woken when there is something to take.
  bool empty() const { return empty_.load(std::memory_order_acquire); }
  std::vector<Connection> Take();
  void Close();

 private:
  mutable std::mutex mutex_;
  Poller* poller_;  // null when it is closed
  std::vector<Connection> given_;
  std::atomic<bool> empty_{true};
};

}  // namespace tutti::net::tcp
