#include "tutti/collective/job_links.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/address.h"
#include "tutti/net/mesh.h"
#include "tutti/net/shm/shm_transport.h"
#include "tutti/net/tcp/tcp_transport.h"
#include "tutti/net/ucx/ucx_transport.h"

namespace tutti::collective {
namespace {

// What a rank tells the others: "<name in shared memory>\n<endpoint of its sockets>"; either may be
// empty.
struct Endpoints {
  std::string memory;
  std::string socket;
};

Endpoints Split(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {text, ""};
  return {text.substr(0, end), text.substr(end + 1)};
}

absl::StatusOr<std::unique_ptr<net::TcpTransport>> Listen(const CommunicatorOptions& options,
                                                          net::Star& star) {
  const Bootstrap& bootstrap = options.bootstrap;
  net::TcpOptions tcp{.rank = bootstrap.rank,
                      .size = bootstrap.size,
                      .job = bootstrap.job,
                      .token = bootstrap.token,
                      .generation = bootstrap.generation,
                      .host = star.own_address(),
                      .streams = options.tcp_streams};
  // Rank 0's own endpoint is where the star listens; the others' are free for data.
  if (!bootstrap.endpoints.empty() && bootstrap.rank > 0) {
    TUTTI_ASSIGN_OR_RETURN(const net::Endpoint endpoint,
                           net::ParseEndpoint(bootstrap.endpoints[bootstrap.rank]));
    tcp.host = endpoint.host;
    tcp.port = endpoint.port;
  }
  return net::TcpTransport::Listen(tcp);
}

std::vector<int> HostsOf(const std::vector<Endpoints>& endpoints) {
  std::vector<int> hosts;
  int next = 0;
  for (size_t r = 0; r < endpoints.size(); ++r) {
    int host = -1;
    for (size_t earlier = 0; earlier < r && host < 0; ++earlier) {
      if (!endpoints[r].memory.empty() &&
          net::ShmEndpoint::SameHost(endpoints[earlier].memory, endpoints[r].memory)) {
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
    if (options.transport == "shm") return sockets;
    if (!options.transport.ends_with("ucx")) {
      TUTTI_ASSIGN_OR_RETURN(sockets.tcp_, Listen(options, star));
      return sockets;
    }
    TUTTI_ASSIGN_OR_RETURN(sockets.ucx_, net::UcxTransport::Open({.rank = options.bootstrap.rank,
                                                                  .size = options.bootstrap.size,
                                                                  .host = star.own_address()}));
    return sockets;
  }

  // Empty: there are none.
  std::string endpoint() const {
    return tcp_ != nullptr ? tcp_->endpoint() : ucx_ != nullptr ? ucx_->endpoint() : "";
  }
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
  TUTTI_ASSIGN_OR_RETURN(Sockets sockets, Sockets::Open(options, star));
  TUTTI_ASSIGN_OR_RETURN(
      const std::vector<std::string> told,
      star.AllGather((memory ? memory->name() : "") + "\n" + sockets.endpoint()));
  std::vector<Endpoints> endpoints;
  for (const std::string& text : told) endpoints.push_back(Split(text));

  JobLinks links;
  links.hosts = HostsOf(endpoints);
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
    for (size_t r = 0; r < endpoints.size(); ++r) {
      shm.names.push_back(links.hosts[r] == own_host ? endpoints[r].memory : "");
    }
    TUTTI_ASSIGN_OR_RETURN(within, net::ShmTransport::Connect(std::move(memory), shm));
  }
  if (hosts == 1 && within != nullptr) {
    links.transport = std::move(within);
    return links;
  }
  std::vector<std::string> addresses;
  for (const Endpoints& one : endpoints) addresses.push_back(one.socket);
  TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<net::Transport> between, sockets.Connect(addresses));
  if (within == nullptr) {
    links.transport = std::move(between);
  } else {
    TUTTI_ASSIGN_OR_RETURN(links.transport,
                           net::Mesh::Create(std::move(within), std::move(between)));
  }
  return links;
}

}  // namespace tutti::collective
