// Stands in for the transport over UCX in a build without UCX's headers.
#include "tutti/base/status.h"
#include "tutti/net/ucx/ucx_transport.h"

namespace tutti::net {

bool UcxTransport::IsBuiltIn() { return false; }

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Open(const UcxOptions& /*options*/) {
  return Unimplemented(
      "this build has no UCX; install libucx-dev and build again (-DTUTTI_UCX=ON), or use another "
      "transport");
}

}  // namespace tutti::net
