#include "tutti/cluster/remote/cluster_network.h"

#include <utility>

#include "tutti/cluster/grpc/control_client.h"
#include "tutti/cluster/grpc/control_server.h"
#include "tutti/net/link/links.h"
#include "tutti/net/link/shared_memory.h"
#include "tutti/net/port/dial.h"
#include "tutti/net/port/port.h"

namespace tutti {
namespace {

// What a handshake calls the job. A client knows nothing of a cluster but an address and the token.
constexpr const char* kJob = "tutti-cluster";

}  // namespace

struct ClusterNetwork::State {
  Options options;
  net::Identity identity;
  std::string address;
  std::unique_ptr<ControlClient> client;
  std::unique_ptr<net::Links> links;
  std::unique_ptr<ControlServer> server;  // null for a client
  std::unique_ptr<net::Port> port;        // null for a client
};

ClusterNetwork::ClusterNetwork(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<ClusterNetwork>> ClusterNetwork::Make(Options options,
                                                                     net::LinkEvents* events,
                                                                     ControlHandler* handler) {
  auto state = std::make_unique<State>();
  state->identity.job = kJob;
  state->identity.token = options.token;
  state->identity.task = options.self.task;
  state->identity.incarnation = options.self.incarnation;
  state->options = std::move(options);
  TUTTI_ASSIGN_OR_RETURN(
      state->links,
      net::Links::Create({.identity = state->identity, .first_stays = state->options.first_stays},
                         events));
  const Options& given = state->options;
  if (!given.bind.empty()) {
    net::PortOptions port{.identity = state->identity,
                          .bind = given.bind,
                          .advertised = given.advertised,
                          .start_seconds = given.start_seconds,
                          .stopped = given.stopped,
                          .insecure = given.insecure};
    TUTTI_ASSIGN_OR_RETURN(state->port, net::Port::Open(std::move(port)));
    state->address = state->port->address();
    state->server = std::make_unique<ControlServer>(handler);
    state->links->Serve(state->port.get());
    state->port->Serve(net::Identity::Purpose::kRpc,
                       [server = state->server.get()](const net::Identity&, net::Socket socket) {
                         server->Adopt(socket.Release());
                       });
  }
  state->client = std::make_unique<ControlClient>();
  return std::unique_ptr<ClusterNetwork>(new ClusterNetwork(std::move(state)));
}

// Nothing new comes in, links end and tell both sides, then what was called over them is answered,
// and calls end.
ClusterNetwork::~ClusterNetwork() {
  state_->port.reset();
  state_->links.reset();
  state_->client.reset();
  state_->server.reset();
}

namespace {

class SharedBuffer final : public Buffer {
 public:
  explicit SharedBuffer(net::SharedMemory::Block block)
      : Buffer(block.bytes.data(), block.bytes.size()), owner_(std::move(block.owner)) {}

 private:
  const std::shared_ptr<void> owner_;
};

}  // namespace

std::function<BufferRef(size_t bytes)> ClusterNetwork::memory() const {
  static_assert(kLeastShared >= net::SharedMemory::kLeastBytes);
  return [memory = state_->links->memory()](size_t bytes) {
    auto block = memory->Allocate(bytes);
    return block.ok() ? BufferRef(new SharedBuffer(*std::move(block))) : BufferRef();
  };
}

absl::Status ClusterNetwork::Start() {
  return state_->port == nullptr ? absl::OkStatus() : state_->port->Start();
}

const std::string& ClusterNetwork::address() const { return state_->address; }

uint64_t ClusterNetwork::refused_links() const { return state_->links->refused(); }

std::string ClusterNetwork::AddressOf(const std::string& task) const {
  const auto it = state_->options.addresses.find(task);
  return it == state_->options.addresses.end() ? "unknown address" : it->second;
}

absl::StatusOr<Network::Control> ClusterNetwork::OpenControl(
    const std::string& task, int64_t deadline, std::function<void(absl::Status)> lost) {
  const auto address = state_->options.addresses.find(task);
  if (address == state_->options.addresses.end()) {
    return NotFound("the cluster has no task {}", task);
  }
  // A client knows its target by address alone.
  const bool by_name = task.starts_with("/job:");
  TUTTI_ASSIGN_OR_RETURN(
      net::Connection connection,
      net::ConnectTo(address->second, state_->identity, net::Identity::Purpose::kRpc,
                     by_name ? task : "", deadline));
  Control control;
  control.peer = {connection.peer.task, connection.peer.incarnation};
  control.channel =
      state_->client->Adopt(connection.socket.Release(), state_->options.self,
                            control.peer.task + " (" + address->second + ")", std::move(lost));
  return control;
}

std::shared_ptr<net::Link> ClusterNetwork::OpenLink(const std::string& task,
                                                    const net::TaskIdentity& peer) {
  return state_->links->To(peer.task, AddressOf(task), peer.incarnation);
}

}  // namespace tutti
