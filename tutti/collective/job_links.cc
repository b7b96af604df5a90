#include "tutti/collective/job_links.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "tutti/base/cancellation.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/mesh.h"
#include "tutti/net/port/listen_at.h"
#include "tutti/net/shm/shm_transport.h"
#include "tutti/net/tcp/entrance.h"
#include "tutti/net/tcp/tcp_transport.h"
#include "tutti/net/ucx/ucx_transport.h"

namespace tutti::collective {
namespace {

// The port of the cluster spec is the only one of a rank: rank 0's, where the star listens, takes
// data too.
absl::StatusOr<std::unique_ptr<net::TcpTransport>> ServeAtTheStar(net::TcpOptions tcp,
                                                                  net::Star& star) {
  TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<net::TcpTransport> transport,
                         net::TcpTransport::Behind(star.port(), tcp));
  if (star.port().empty()) return transport;  // a job of one
  const std::shared_ptr<net::tcp::Entrance> entrance = transport->entrance();
  star.Serve(
      net::Identity::Purpose::kTcpData,
      [entrance](const net::Identity& peer, net::Socket socket) {
        entrance->Give(peer, std::move(socket));
      },
      [entrance](const net::Identity& peer, std::string* why) {
        return entrance->Admit(peer, why);
      });
  return transport;
}

// A socket that listens at this rank's own endpoint.
absl::StatusOr<net::Socket> ListenAtOwnEndpoint(const Bootstrap& bootstrap) {
  const Cancellation* const cancellation = bootstrap.cancellation;
  absl::StatusOr<net::Socket> socket = net::ListenAt(
      bootstrap.endpoints[static_cast<size_t>(bootstrap.rank)],
      {.deadline_nanos = NowNanos() + static_cast<int64_t>(bootstrap.timeout_seconds * 1e9),
       .stopped = [cancellation] { return cancellation != nullptr && cancellation->cancelled(); }});
  if (absl::IsCancelled(socket.status())) return cancellation->status();
  return socket;
}

absl::StatusOr<std::unique_ptr<net::TcpTransport>> OpenTcp(const CommunicatorOptions& options,
                                                           net::Star& star) {
  const Bootstrap& bootstrap = options.bootstrap;
  net::TcpOptions tcp{.rank = bootstrap.rank,
                      .size = bootstrap.size,
                      .job = bootstrap.job,
                      .token = bootstrap.token,
                      .generation = bootstrap.generation,
                      .host = star.own_address(),
                      .streams = options.tcp_streams};
  if (bootstrap.rank == 0) return ServeAtTheStar(tcp, star);
  if (!bootstrap.endpoints.empty()) {
    TUTTI_ASSIGN_OR_RETURN(net::Socket listener, ListenAtOwnEndpoint(bootstrap));
    tcp.listener = listener.Release();
  }
  return net::TcpTransport::Listen(tcp);
}

// By their names in shared memory; a rank without one is a host of its own.
std::vector<int> HostsOf(const std::vector<std::string>& memory) {
  std::vector<int> hosts;
  int next = 0;
  for (size_t r = 0; r < memory.size(); ++r) {
    int host = -1;
    for (size_t earlier = 0; earlier < r && host < 0; ++earlier) {
      if (!memory[r].empty() && net::ShmEndpoint::SameHost(memory[earlier], memory[r])) {
        host = hosts[earlier];
      }
    }
    hosts.push_back(host < 0 ? next++ : host);
  }
  return hosts;
}

// What goes between hosts, or everywhere: TCP or UCX.
class Sockets {
 public:
  static absl::StatusOr<Sockets> Open(const CommunicatorOptions& options, net::Star& star) {
    Sockets sockets;
    if (!options.transport.ends_with("ucx")) {
      TUTTI_ASSIGN_OR_RETURN(sockets.tcp_, OpenTcp(options, star));
      return sockets;
    }
    TUTTI_ASSIGN_OR_RETURN(sockets.ucx_, net::UcxTransport::Open({.rank = options.bootstrap.rank,
                                                                  .size = options.bootstrap.size,
                                                                  .host = star.own_address()}));
    return sockets;
  }

  std::string endpoint() const { return ucx_ != nullptr ? ucx_->endpoint() : tcp_->endpoint(); }
  absl::StatusOr<std::unique_ptr<net::Transport>> Connect(std::span<const std::string> endpoints) {
    if (ucx_ != nullptr) {
      TUTTI_RETURN_IF_ERROR(ucx_->Connect(endpoints));
      return std::move(ucx_);
    }
    TUTTI_RETURN_IF_ERROR(tcp_->Connect(endpoints));
    return std::move(tcp_);
  }

 private:
  std::unique_ptr<net::TcpTransport> tcp_;
  std::unique_ptr<net::UcxTransport> ucx_;
};

}  // namespace

absl::Status CheckTransport(std::string_view name) {
  if (name == "auto" || name == "shm" || name == "tcp") return absl::OkStatus();
  if (name != "ucx" && name != "shm+ucx") {
    return InvalidArgument("transport \"{}\": expected auto, shm, tcp, ucx or shm+ucx", name);
  }
  if (net::UcxTransport::IsBuiltIn()) return absl::OkStatus();
  return WithPrefix(net::UcxTransport::Open({}).status(), fmt::format("transport \"{}\": ", name));
}

absl::StatusOr<JobLinks> OpenLinks(const CommunicatorOptions& options, net::Star& star) {
  const Bootstrap& bootstrap = options.bootstrap;
  const std::string& kind = options.transport;
  TUTTI_RETURN_IF_ERROR(CheckTransport(kind));
  std::unique_ptr<net::ShmEndpoint> memory;
  if (kind != "tcp" && kind != "ucx") {
    TUTTI_ASSIGN_OR_RETURN(memory, net::ShmEndpoint::Open());
  }
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         star.AllGather(memory != nullptr ? memory->name() : ""));

  JobLinks links;
  links.hosts = HostsOf(names);
  const int own_host = links.hosts[bootstrap.rank];
  const int hosts = 1 + *std::max_element(links.hosts.begin(), links.hosts.end());
  if (kind == "shm" && hosts > 1) {
    const auto other = std::find(links.hosts.begin(), links.hosts.end(), 1) - links.hosts.begin();
    return InvalidArgument(
        "transport \"shm\": rank {} is on another host than rank 0; use auto or tcp", other);
  }
  const bool neighbours = std::count(links.hosts.begin(), links.hosts.end(), own_host) > 1;
  std::unique_ptr<net::Transport> within;
  if (memory != nullptr && (hosts == 1 || neighbours)) {
    net::ShmOptions shm{.rank = bootstrap.rank,
                        .size = bootstrap.size,
                        .names = {},
                        .timeout_seconds = bootstrap.timeout_seconds};
    for (size_t r = 0; r < names.size(); ++r) {
      shm.names.push_back(links.hosts[r] == own_host ? names[r] : "");
    }
    TUTTI_ASSIGN_OR_RETURN(within, net::ShmTransport::Connect(std::move(memory), shm));
  }
  if (hosts == 1 && within != nullptr) {
    links.transport = std::move(within);
    return links;
  }
  // Where memory joins all, nothing listens but the star.
  TUTTI_ASSIGN_OR_RETURN(Sockets sockets, Sockets::Open(options, star));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> endpoints,
                         star.AllGather(sockets.endpoint()));
  TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<net::Transport> between, sockets.Connect(endpoints));
  if (within == nullptr) {
    links.transport = std::move(between);
  } else {
    TUTTI_ASSIGN_OR_RETURN(links.transport,
                           net::Mesh::Create(std::move(within), std::move(between)));
  }
  return links;
}

}  // namespace tutti::collective
