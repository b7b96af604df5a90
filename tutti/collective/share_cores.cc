// Every rank tells where it runs ("<id of the running kernel> 0 1 2 3"), all divide alike, and each
// takes its part. The id is that of the kernel and not a host name or address: containers and
// network namespaces of one machine share its cores.
#include "tutti/collective/share_cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

std::string OwnClaim() {
  std::string host;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host;
  if (host.empty()) {
    char name[256] = "";
    ::gethostname(name, sizeof(name) - 1);
    host = fmt::format("host-{}", name);
  }
  return fmt::format("{} {}", host, fmt::join(NumbersOfUsableCores(), " "));
}

CoreClaim ParseClaim(const std::string& text) {
  std::istringstream words(text);
  CoreClaim claim;
  words >> claim.host;
  for (int core = 0; words >> core;) claim.cores.push_back(core);
  std::sort(claim.cores.begin(), claim.cores.end());
  return claim;
}

// "2 workers share the 2 cores of this host: 1 core each".
void Tell(const std::vector<CoreClaim>& claims, const std::vector<std::vector<int>>& shares,
          size_t rank) {
  size_t workers = 0, least = claims[rank].cores.size(), most = 0;
  std::vector<int> cores;
  for (size_t r = 0; r < claims.size(); ++r) {
    if (claims[r].host != claims[rank].host) continue;
    if (r < rank) return;  // it tells
    ++workers;
    least = std::min(least, shares[r].size());
    most = std::max(most, shares[r].size());
    cores.insert(cores.end(), claims[r].cores.begin(), claims[r].cores.end());
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  Log(LogLevel::kInfo, "{} workers share the {} core{} of this host: {}{} core{} each{}", workers,
      cores.size(), cores.size() == 1 ? "" : "s", least == most ? "" : fmt::format("{} to ", least),
      most, most == 1 ? "" : "s",
      workers > cores.size() ? ", some of them the same one, so they take turns" : "");
}

}  // namespace

absl::Status ShareCores(net::Star& star, int rank) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> told, star.AllGather(OwnClaim()));
  std::vector<CoreClaim> claims;
  for (const std::string& text : told) claims.push_back(ParseClaim(text));
  const std::vector<std::vector<int>> shares = DivideCores(claims);
  const auto own = size_t(rank);
  bool divided = false;
  for (size_t r = 0; r < claims.size(); ++r) {
    divided |= claims[r].host == claims[own].host && shares[r] != claims[r].cores;
  }
  if (!divided || shares[own].empty()) return absl::OkStatus();
  Tell(claims, shares, own);
  return RunOnCores(shares[own]);
}

}  // namespace tutti::collective
