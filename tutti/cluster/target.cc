#include "tutti/cluster/target.h"

#include <cstdlib>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/cluster/remote/cluster_network.h"
#include "tutti/cluster/remote/peers.h"
#include "tutti/cluster/remote/remote_master.h"
#include "tutti/net/address.h"
#include "tutti/net/link/links.h"

namespace tutti {
namespace {

constexpr std::string_view kScheme = "tutti://";

// The connections of a client. It knows its target by address alone.
struct Connection {
  ~Connection() {
    peers->Stop(Cancelled("the client ended"));
    network.reset();
  }

  MemoryPool pool;
  std::shared_ptr<TaskPeers> peers;
  std::unique_ptr<ClusterNetwork> network;
};

absl::StatusOr<std::shared_ptr<Connection>> Open(const TargetOptions& options) {
  const std::string_view target = options.target;
  if (!target.starts_with(kScheme)) {
    return InvalidArgument(
        "target \"{}\" is not known; expected \"\" for this process or \"tutti://host:port\" for "
        "the task of a cluster that listens there",
        options.target);
  }
  const std::string address(target.substr(kScheme.size()));
  const auto endpoint = net::ParseEndpoint(address);
  if (!endpoint.ok()) return WithPrefix(endpoint.status(), "target: ");
  if (!(options.start_seconds >= 0 && options.start_seconds <= 1e6)) {
    return InvalidArgument("{} s to reach the target; expected 0 to 1,000,000",
                           options.start_seconds);
  }
  const char* const given = std::getenv("TUTTI_JOB_TOKEN");
  auto connection = std::make_shared<Connection>();
  const net::TaskIdentity self{std::string(net::kClientTask), net::MakeIncarnation()};
  connection->peers = std::make_shared<TaskPeers>(TaskPeers::Options{
      .self = self,
      .fingerprint = {},
      .pool = [&pool = connection->pool](std::string_view) -> MemoryPool& { return pool; }});
  TUTTI_ASSIGN_OR_RETURN(
      connection->network,
      ClusterNetwork::Make(
          {.self = self,
           .token = options.token.empty() && given != nullptr ? given : options.token,
           .addresses = {{address, address}}},
          connection->peers.get(), connection->peers.get()));
  connection->peers->Start(connection->network.get(), nullptr);
  return connection;
}

int64_t PatienceOf(const TargetOptions& options) { return int64_t(options.start_seconds * 1e9); }

std::string AddressIn(const TargetOptions& options) {
  return options.target.substr(kScheme.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Master>> MasterAtTarget(const TargetOptions& options,
                                                       const CompileOptions& compile) {
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Connection> connection, Open(options));
  // The master keeps the connection.
  std::shared_ptr<TaskPeers> peers(connection, connection->peers.get());
  return std::make_unique<RemoteMaster>(std::move(peers), AddressIn(options), PatienceOf(options),
                                        compile);
}

namespace {

// One call to the task of the target, with waiting.
absl::StatusOr<std::string> CallTarget(const TargetOptions& options, ControlMethod method,
                                       const std::string& fields, std::string* own = nullptr) {
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Connection> connection, Open(options));
  Awaited<absl::StatusOr<std::string>> reply;
  connection->peers->Get(AddressIn(options), PatienceOf(options),
                         [&](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
                           if (!peer.ok()) {
                             reply.Set(peer.status());
                             return;
                           }
                           if (own != nullptr) *own = (*peer)->identity().task;
                           WireMessage message;
                           message.fields = fields;
                           (*peer)->Call(method, std::move(message),
                                         [&reply](auto given) { reply.Set(std::move(given)); });
                         });
  return reply.Wait();
}

}  // namespace

absl::StatusOr<std::vector<TaskStatus>> StatusOfTarget(const TargetOptions& options,
                                                       std::string* own) {
  TUTTI_ASSIGN_OR_RETURN(const std::string fields,
                         CallTarget(options, ControlMethod::kClusterStatus, "", own));
  return DecodeTaskStatuses(fields);
}

absl::Status ResetTarget(const TargetOptions& options, const std::string& container) {
  return CallTarget(options, ControlMethod::kReset, container).status();
}

}  // namespace tutti
