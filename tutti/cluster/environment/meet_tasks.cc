#include "tutti/cluster/environment/meet_tasks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tutti/base/cancellation.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/cluster/environment/pmi_client.h"
#include "tutti/cluster/environment/pmix_client.h"
#include "tutti/cluster/environment/roles.h"
#include "tutti/net/coordination/meeting_file.h"
#include "tutti/net/coordination/star.h"
#include "tutti/net/token.h"

namespace tutti {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between looks for the file

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What others can reach this host at.
std::string OwnHost(bool one_host) {
  if (const std::string given = FromEnvironment("TUTTI_HOST"); !given.empty()) return given;
  if (one_host) return "127.0.0.1";
  std::string found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    found = text;
  }
  ::freeifaddrs(all);
  return found;
}

// Where process 0 is, and what all must know to come to it.
struct MeetingPlace {
  std::string job;
  std::string host;
  std::string token;
  std::string file = "";  // to be removed by process 0
  int port = 0;           // 0: PortOf(job)
  net::Socket listener;   // of process 0, where the port is not made from the job
};

absl::StatusOr<MeetingPlace> PlaceByPmi(const LaunchEnvironment& environment, int64_t deadline) {
  const std::string number = FromEnvironment("PMI_FD");
  int fd = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  if (error != std::errc() || end != number.data() + number.size() || fd < 0) {
    return InvalidArgument(
        "PMI_RANK and PMI_SIZE are set, but PMI_FD is \"{}\"; expected the connection to mpiexec: "
        "start the program by it, or set TUTTI_LAUNCH=alone",
        number);
  }
  std::string token = FromEnvironment("TUTTI_JOB_TOKEN");
  if (token.empty()) token = net::MakeToken();
  // The token may be any text, PMI's values may not.
  const bool given = !FromEnvironment("TUTTI_JOB_TOKEN").empty();
  TUTTI_ASSIGN_OR_RETURN(
      const PmiExchange exchange,
      ExchangeByPmi(fd, environment.rank,
                    fmt::format("{}/{}", OwnHost(environment.one_host), given ? "" : token),
                    deadline));
  const size_t slash = exchange.told.find('/');
  if (slash == std::string::npos) {
    return Unavailable("PMI: process 0 published \"{}\"; expected host/token", exchange.told);
  }
  if (!given) token = exchange.told.substr(slash + 1);
  return MeetingPlace{
      .job = exchange.job, .host = exchange.told.substr(0, slash), .token = token, .listener = {}};
}

absl::StatusOr<int> PortOf(const std::string& job) {
  const std::string given = FromEnvironment("TUTTI_JOB_PORT");
  if (given.empty()) return PortOfJob(job);
  int port = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), port);
  if (error != std::errc() || end != given.data() + given.size() || port < 1 || port > 65535) {
    return InvalidArgument("TUTTI_JOB_PORT is \"{}\"; expected a port from 1 to 65535", given);
  }
  return port;
}

// What process 0 tells: "host port token", the last empty where all have it from the environment.
// Its port is any that is free, since it can be told, unless TUTTI_JOB_PORT wants a certain one.
absl::StatusOr<MeetingPlace> PlaceByPmix(const LaunchEnvironment& environment,
                                         const MeetOptions& options, int64_t deadline) {
  const std::string given = FromEnvironment("TUTTI_JOB_TOKEN");
  MeetingPlace place;
  place.job = environment.job;
  std::string tell;
  if (environment.rank == 0) {
    int port = 0;
    if (!FromEnvironment("TUTTI_JOB_PORT").empty()) {
      TUTTI_ASSIGN_OR_RETURN(port, PortOf(environment.job));
    }
    const std::string host = environment.one_host             ? "127.0.0.1"
                             : environment.first_host.empty() ? OwnHost(false)
                                                              : environment.first_host;
    const net::Endpoint wanted = {environment.one_host ? host : "0.0.0.0",
                                  static_cast<uint16_t>(port)};
    TUTTI_ASSIGN_OR_RETURN(const std::vector<net::Address> addresses, net::Resolve(wanted));
    absl::StatusOr<net::Socket> listener = net::Listen(addresses.front());
    if (!listener.ok()) {
      return MakeStatus(listener.status().code(), "{}; TUTTI_JOB_PORT chooses another one",
                        MessageOf(listener.status()));
    }
    place.listener = *std::move(listener);
    TUTTI_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(place.listener.fd()));
    tell = fmt::format("{} {} {}", host, bound.port(), given.empty() ? net::MakeToken() : "");
  }
  TUTTI_ASSIGN_OR_RETURN(const std::string told,
                         TellByPmix(environment.rank, tell, deadline, options.cancellation));
  const size_t first = told.find(' ');
  const size_t second = first == told.npos ? told.npos : told.find(' ', first + 1);
  const char* const end = told.data() + (second == told.npos ? 0 : second);
  if (second == told.npos || std::from_chars(told.data() + first + 1, end, place.port).ptr != end ||
      place.port < 1 || place.port > 65535) {
    return Unavailable("PMIx: process 0 told \"{}\"; expected its host, its port and a token",
                       told);
  }
  place.host = told.substr(0, first);
  place.token = given.empty() ? told.substr(second + 1) : given;
  return place;
}

absl::StatusOr<std::string> MeetingPath(const std::string& job) {
  std::string folder = FromEnvironment("TUTTI_JOB_DIR");
  if (folder.empty()) {
    const std::string home = FromEnvironment("HOME");
    if (home.empty()) {
      return InvalidArgument(
          "neither TUTTI_JOB_TOKEN nor TUTTI_JOB_DIR nor HOME is set: the processes of this job "
          "need a token, or a shared folder for a file that has one");
    }
    folder = home + "/.tutti";
    ::mkdir(folder.c_str(), 0700);  // what fails shows when the file is written
  }
  std::string name = job;
  std::replace(name.begin(), name.end(), '/', '-');
  return folder + "/" + name;
}

absl::StatusOr<MeetingPlace> PlaceByFile(const LaunchEnvironment& environment,
                                         const MeetOptions& options, int64_t deadline) {
  TUTTI_ASSIGN_OR_RETURN(const std::string path, MeetingPath(environment.job));
  const std::string token = FromEnvironment("TUTTI_JOB_TOKEN");
  if (environment.rank == 0) {
    MeetingPlace place;
    place.job = environment.job;
    place.host = OwnHost(environment.one_host);
    place.token = token.empty() ? net::MakeToken() : token;
    place.file = path;
    TUTTI_RETURN_IF_ERROR(
        net::WriteMeetingFile(path, {place.host, place.job, 0, token.empty() ? place.token : ""}));
    return place;
  }
  while (true) {
    const absl::StatusOr<net::MeetingFile> file = net::ReadMeetingFile(path);
    if (file.ok() && file->job == environment.job) {
      return MeetingPlace{.job = environment.job,
                          .host = file->address,
                          .token = token.empty() ? file->token : token,
                          .listener = {}};
    }
    if (absl::IsPermissionDenied(file.status())) return file.status();
    if (options.cancellation != nullptr && options.cancellation->cancelled()) {
      return options.cancellation->status();
    }
    if (NowNanos() >= deadline) {
      return DeadlineExceeded(
          "process {} has waited {} s for {}, which process 0 writes; is the folder shared by all "
          "hosts? TUTTI_JOB_DIR names another one, and TUTTI_JOB_TOKEN brings the token without a "
          "file",
          environment.rank, options.timeout_seconds, path);
    }
    std::this_thread::sleep_for(kLook);
  }
}

absl::StatusOr<MeetingPlace> FindPlace(const LaunchEnvironment& environment,
                                       const MeetOptions& options, int64_t deadline) {
  if (environment.kind == LaunchKind::kMpich) return PlaceByPmi(environment, deadline);
  TUTTI_ASSIGN_OR_RETURN(const Pmix pmix, FindPmix(environment));
  if (pmix.state == Pmix::State::kUsed) return PlaceByPmix(environment, options, deadline);
  const std::string host = environment.one_host ? "127.0.0.1" : environment.first_host;
  const std::string token = FromEnvironment("TUTTI_JOB_TOKEN");
  if (!host.empty() && !token.empty()) {
    return MeetingPlace{.job = environment.job, .host = host, .token = token, .listener = {}};
  }
  TUTTI_ASSIGN_OR_RETURN(MeetingPlace place, PlaceByFile(environment, options, deadline));
  if (!host.empty()) place.host = host;
  return place;
}

absl::StatusOr<std::unique_ptr<net::Star>> Connect(const LaunchEnvironment& environment,
                                                   const MeetOptions& options, MeetingPlace& place,
                                                   int64_t deadline) {
  int port = place.port;
  if (port == 0) {
    TUTTI_ASSIGN_OR_RETURN(port, PortOf(place.job));
  }
  net::StarOptions star;
  star.rank = environment.rank;
  star.size = environment.size;
  // What the others call this host may not be an address that it has (127.0.1.1).
  const bool everywhere = environment.rank == 0 && !environment.one_host;
  star.address = fmt::format("{}:{}", everywhere ? "0.0.0.0" : place.host, port);
  star.listener = place.listener.valid() ? place.listener.Release() : -1;
  star.job = place.job;
  star.token = place.token;
  star.timeout_seconds = std::max(0.001, double(deadline - NowNanos()) * 1e-9);
  star.cancellation = options.cancellation;
  star.fingerprint = {fmt::format("ps={}", options.ps),
                      fmt::format("evaluator={}", options.evaluator ? "yes" : "no")};
  auto connected = net::Star::Connect(star);
  if (!connected.ok() && environment.rank == 0 && absl::IsUnavailable(connected.status())) {
    return MakeStatus(connected.status().code(),
                      "{}; this port is made from the name of the job, {}: TUTTI_JOB_PORT chooses "
                      "another one, the same for all processes",
                      MessageOf(connected.status()), place.job);
  }
  return connected;
}

}  // namespace

absl::StatusOr<MetTasks> MeetTasks(const LaunchEnvironment& environment,
                                   const MeetOptions& options) {
  const int64_t deadline = NowNanos() + int64_t(options.timeout_seconds * 1e9);
  TUTTI_ASSIGN_OR_RETURN(const RoleCounts roles,
                         DivideRoles(environment.size, options.ps, options.evaluator));
  TUTTI_ASSIGN_OR_RETURN(MeetingPlace place, FindPlace(environment, options, deadline));
  auto star = Connect(environment, options, place, deadline);
  if (!place.file.empty()) ::unlink(place.file.c_str());
  if (!star.ok()) return star.status();
  MetTasks met;
  // Processes of one host may have met at its loopback, where others cannot reach them.
  const std::string met_at = (*star)->own_address();
  const bool loopback = met_at.starts_with("127.") || met_at == "::1";
  const bool given = !FromEnvironment("TUTTI_HOST").empty();
  const std::string host =
      given || (loopback && !environment.one_host) ? OwnHost(environment.one_host) : met_at;
  TUTTI_ASSIGN_OR_RETURN(const std::vector<net::Address> own, net::Resolve({host, 0}));
  TUTTI_ASSIGN_OR_RETURN(met.port, net::Listen(own.front()));
  TUTTI_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(met.port.fd()));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                         (*star)->AllGather(net::ToString(bound)));
  ClusterSpec::Jobs jobs;
  const std::vector<TaskId> tasks = TasksOf(roles);
  for (size_t i = 0; i < tasks.size(); ++i) jobs[tasks[i].job][tasks[i].index] = addresses[i];
  TUTTI_ASSIGN_OR_RETURN(met.config.cluster,
                         ClusterSpec::MakeForTraining(std::move(jobs), "the job"));
  met.config.task = tasks[size_t(environment.rank)];
  met.token = place.token;
  return met;
}

}  // namespace tutti
