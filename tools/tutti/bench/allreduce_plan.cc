#include "tools/tutti/bench/allreduce_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "tutti/base/status.h"
#include "tutti/collective/job_links.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/reduce/reduction_names.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

constexpr int64_t kElement = 4;  // float32

// What a rank needs for its part of an all-reduce, in multiples of the data: the data, and where
// everybody sends everything to everybody, what comes from the others.
int64_t CopiesOf(const AllReduceBench& bench, int ranks) {
  return bench.algorithm == "exchange" ? ranks : 1;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> SizesOf(const AllReduceBench& bench) {
  std::vector<int64_t> sizes;
  for (const std::string& text : bench.bytes) {
    const auto size = topology::ParseBytes(text);
    if (!size.ok()) return WithPrefix(size.status(), "--bytes: ");
    if (*size < kElement || *size % kElement != 0) {
      return InvalidArgument(
          "--bytes: {} bytes are no whole number of float32 elements; expected a multiple of {}, "
          "as {}",
          *size, kElement, std::max(kElement, *size / kElement * kElement));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

absl::Status CheckOptions(const AllReduceBench& bench) {
  const auto about = [](std::string_view option, const absl::Status& status) {
    return WithPrefix(status, fmt::format("{}: ", option));
  };
  for (const int ranks : bench.ranks) {
    if (ranks < 1 || ranks > 4096) {
      return about("--ranks", InvalidArgument("{}, expected 1 to 4096", ranks));
    }
  }
  TUTTI_RETURN_IF_ERROR(SizesOf(bench).status());
  for (const std::string& transport : bench.transports) {
    TUTTI_RETURN_IF_ERROR(about("--transport", collective::CheckTransport(transport)));
  }
  if (bench.algorithm != "auto") {
    TUTTI_RETURN_IF_ERROR(
        about("--algorithm", collective::AlgorithmId::FromName(bench.algorithm).status()));
  }
  TUTTI_RETURN_IF_ERROR(
      about("--reduction", collective::ReductionFromName(bench.reduction).status()));
  return about("--wire", collective::WireFromName(bench.wire).status());
}

absl::Status CheckFits(const AllReduceBench& bench, int ranks, int64_t available) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOf(bench));
  if (sizes.empty()) return absl::OkStatus();
  const int64_t copies = ranks * CopiesOf(bench, bench.size > 0 ? bench.size : ranks);
  const int64_t most = available / copies;
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  if (largest <= most) return absl::OkStatus();
  return ResourceExhausted(
      "--bytes: {} for {} rank{} of this host need {} of memory, and {} are available; ask for at "
      "most {} a rank, or for fewer ranks",
      topology::FormatBytes(static_cast<double>(largest)), ranks, ranks == 1 ? "" : "s",
      topology::FormatBytes(static_cast<double>(largest) * static_cast<double>(copies)),
      topology::FormatBytes(static_cast<double>(available)),
      topology::FormatBytes(static_cast<double>(most)));
}

int64_t AvailableMemory() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  while (in >> word) {
    int64_t kilobytes = 0;
    if (word == "MemAvailable:" && in >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace tutti::tools
