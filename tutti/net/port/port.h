#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/event_loop.h"
#include "tutti/net/handshake.h"
#include "tutti/net/port/dial.h"
#include "tutti/net/port/door.h"
#include "tutti/net/socket.h"

namespace tutti::net {

struct PortOptions {
  // Job, token, task and incarnation of this process; the rest is not used.
  Identity identity;
  std::string bind = "127.0.0.1:0";  // where to listen; port 0: any
  std::string advertised;            // how others reach it; empty: what was bound
  // A socket that listens already, which a launcher passed on: it is used in place of `bind`, and
  // the Port owns it.
  int listening_fd = -1;
  // For how long the host of `bind` is tried while its name does not resolve (listen_at.h);
  // `stopped` ends that early.
  double start_seconds = 0;
  std::function<bool()> stopped = nullptr;
  bool insecure = false;         // listen beyond this host even without a token
  double handshake_seconds = 5;  // that a connection may take to say who it is
  int max_pending = 256;         // connections that have not said it yet
};

// The one listening socket of a task. Every connection begins with the handshake, whatever it is
// for, and is then handed to the one who serves its purpose; strangers, garbage and silence end
// here. It has a thread of its own.
//
//   auto port = *Port::Open(options);                // listens: connections wait
//   port->Serve(Identity::Purpose::kRpc, [](const Identity& peer, Socket socket) { ... });
//   status = port->Start();                          // accepts
//
// ConnectTo (tutti/net/port/dial.h) is the other side.
class Port {
 public:
  // Called on the port's thread; must not block. The socket is connected, authenticated,
  // non-blocking and without delay.
  using Handler = std::function<void(const Identity& peer, Socket socket)>;

  // UNAVAILABLE where the port is in use; as ListenAt (listen_at.h) where the name of its host does
  // not resolve; FAILED_PRECONDITION where it would listen beyond this
  // host without a token.
  static absl::StatusOr<std::unique_ptr<Port>> Open(PortOptions options);
  ~Port();  // no handler runs afterwards

  // Before Start. `admit` may refuse a peer that has proved its token, in the handshake, so that
  // the peer is told why.
  void Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit = nullptr);
  absl::Status Start();

  const std::string& address() const { return address_; }  // how others reach it: "host:port"
  const std::string& bound() const { return bound_; }

 private:
  struct Service {
    Handler handler;
    Handshake::Admit admit;
  };

  Port(PortOptions options, Socket listening, std::string bound, std::unique_ptr<EventLoop> loop);
  Refusal Admit(const Identity& peer, std::string* why) const;
  void SweepSoon();
  void CheckSilent(int64_t at);

  const PortOptions options_;
  const std::string bound_;
  const std::string address_;
  Socket listening_;  // until Start
  std::map<Identity::Purpose, Service> services_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Door> door_;  // of the loop's thread
  bool sweep_posted_ = false;
  int64_t check_at_ = 0;  // when CheckDeadlines is called next; 0: not
};

}  // namespace tutti::net
