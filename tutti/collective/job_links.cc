#include "tutti/collective/job_links.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/address.h"
#include "tutti/net/mesh.h"
#include "tutti/net/shm/shm_transport.h"
#include "tutti/net/tcp/tcp_transport.h"

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

}  // namespace

absl::StatusOr<JobLinks> OpenLinks(const CommunicatorOptions& options, net::Star& star) {
  const Bootstrap& bootstrap = options.bootstrap;
  const std::string& kind = options.transport;
  if (kind != "auto" && kind != "shm" && kind != "tcp") {
    return InvalidArgument("transport \"{}\": expected auto, shm or tcp", kind);
  }
  std::unique_ptr<net::ShmEndpoint> memory;
  std::unique_ptr<net::TcpTransport> sockets;
  if (kind != "tcp") {
    TUTTI_ASSIGN_OR_RETURN(memory, net::ShmEndpoint::Open());
  }
  if (kind != "shm") {
    TUTTI_ASSIGN_OR_RETURN(sockets, Listen(options, star));
  }
  TUTTI_ASSIGN_OR_RETURN(
      const std::vector<std::string> told,
      star.AllGather((memory ? memory->name() : "") + "\n" + (sockets ? sockets->endpoint() : "")));
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
  TUTTI_RETURN_IF_ERROR(sockets->Connect(addresses));
  if (within == nullptr) {
    links.transport = std::move(sockets);
  } else {
    TUTTI_ASSIGN_OR_RETURN(links.transport,
                           net::Mesh::Create(std::move(within), std::move(sockets)));
  }
  return links;
}

}  // namespace tutti::collective
