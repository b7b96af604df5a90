#include "tutti/cluster/share_of_host.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tutti/base/cores.h"
#include "tutti/base/log.h"

namespace tutti {
namespace {

std::string_view HostOf(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool loopback = host.starts_with("127.") || host == "::1" || host == "localhost" ||
                        host == "localhost.localdomain" || host == "ip6-localhost";
  return loopback ? "localhost" : host;
}

}  // namespace

HostCores CountHostCores() {
  const double limit = CgroupCores();
  const int cores = std::max(1, get_nprocs());
  return {.usable = UsableCores(),
          .total = limit > 0 ? std::min(cores, std::max(1, int(std::ceil(limit)))) : cores};
}

int ShareOfHost(const HostCores& cores, int beside) {
  const bool all = cores.usable >= cores.total;
  const int share = all ? std::max(1, cores.usable / std::max(1, beside)) : cores.usable;
  if (all) {
    Log(LogLevel::kDebug,
        "this task's share of the host's cores is {} of {}: it may use all, and {} task{} of the "
        "job work here at the same time",
        share, cores.total, beside, beside == 1 ? "" : "s");
  } else {
    Log(LogLevel::kDebug, "this task's share of the host's cores is all {} that it was left, of {}",
        share, cores.total);
  }
  return share;
}

int CountOfHost(const std::vector<std::string>& addresses, const std::string& own) {
  return int(std::count_if(
      addresses.begin(), addresses.end(),
      [host = HostOf(own)](const std::string& address) { return HostOf(address) == host; }));
}

}  // namespace tutti
