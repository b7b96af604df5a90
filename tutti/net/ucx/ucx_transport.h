#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::net {

struct UcxOptions {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";  // the address of this host, for messages; see ucx_transport.cc
  // UCX's own transports that may be used, as UCX_TLS has them ("tcp", "posix,sysv,self"). Empty:
  // UCX_TLS of the environment, else UCX's own choice.
  std::string transports;
  size_t max_kept_bytes = size_t{64} << 20;  // of a peer's messages without a Receive
  // Of a Wait before it sleeps; not where the ranks of this host outnumber its cores.
  int64_t spin_nanos = 20'000;
};

// The transport over UCX, for fabrics that sockets do not reach (InfiniBand, RoCE):
// tutti/net/ucx/ucx_transport.cc tells how it works.
//
//   auto transport = *UcxTransport::Open(options);
//   ... the ranks exchange transport->endpoint() by other means, which only they can read ...
//   status = transport->Connect(endpoints);   // of all ranks, by rank
//
// Connections are made when they are first needed. Destroy it when no request is open; what
// SendShort has promised is still sent then, if that takes no longer than a second. Memory may
// outlive it.
class UcxTransport : public Transport {
 public:
  // Was this program built with UCX's headers?
  static bool IsBuiltIn();
  // UNIMPLEMENTED in a build without UCX, FAILED_PRECONDITION where its library cannot be loaded;
  // both say what to do.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Open(const UcxOptions& options);

  // What the others need to reach this rank. Contains a secret: whoever knows it may send.
  virtual const std::string& endpoint() const = 0;
  virtual absl::Status Connect(std::span<const std::string> endpoints) = 0;
};

}  // namespace tutti::net
