#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::net {

namespace tcp {
class Entrance;
}

inline constexpr int kMaxTcpStreams = 64;

struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string job = "tutti";
  std::string token;
  int64_t generation = 0;

  std::string host = "127.0.0.1";  // the address of this host by which the others reach it
  int port = 0;                    // 0: any
  // A descriptor that listens already, and is the transport's from here on; `port` is not used
  // then, and `host` only if it listens at every address of this host.
  int listener = -1;
  // For large messages to each peer, up to kMaxTcpStreams: on another host, and on this one, where
  // several would only share the cores that copy.
  int streams = 2;
  int streams_in_host = 1;

  double connect_seconds = 10;               // for a connection to stand, handshake included
  int max_pending = 128;                     // connections that have not said yet who they are
  size_t max_kept_bytes = size_t{64} << 20;  // of a peer's messages without a Receive
  // Of a Wait before it sleeps; not where the ranks of this host outnumber its cores, since whoever
  // is waited for may need this one.
  int64_t spin_nanos = 20'000;
};

// The transport between hosts: tutti/net/tcp/tcp_transport.cc tells how it works.
//
//   auto transport = *TcpTransport::Listen(options);
//   ... the ranks exchange transport->endpoint() by other means ...
//   status = transport->Connect(endpoints);   // of all ranks, by rank
//
// Connections are made when they are first needed. A request to a peer that cannot be reached ends
// with UNAVAILABLE. Destroy it when no request is open; what SendShort has promised is still sent
// then, if that takes no longer than a second. Memory may outlive it.
class TcpTransport : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Listen(const TcpOptions& options);
  // One that does not listen: who has the port at `endpoint` gives what comes there to entrance().
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Behind(const std::string& endpoint,
                                                              const TcpOptions& options);

  // Where the others connect to: "10.0.0.7:4711" or "[fd00::7]:4711".
  virtual const std::string& endpoint() const = 0;
  virtual std::shared_ptr<tcp::Entrance> entrance() const = 0;  // null where it listens itself
  // Looks up names, but connects to nobody yet. Peers may connect before this is called.
  virtual absl::Status Connect(std::span<const std::string> endpoints) = 0;
};

}  // namespace tutti::net
