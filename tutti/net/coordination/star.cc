#include "tutti/net/coordination/star.h"

#include "tutti/base/status.h"
#include "tutti/net/address.h"
#include "tutti/net/coordination/control_message.h"
#include "tutti/net/coordination/star_hub.h"
#include "tutti/net/coordination/star_spoke.h"
#include "tutti/net/handshake.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr int kMaxRanks = 65536;
constexpr double kMaxSeconds = 1e6;

absl::Status CheckSeconds(std::string_view name, double seconds) {
  if (seconds > 0 && seconds <= kMaxSeconds) return absl::OkStatus();  // false for NaN
  return InvalidArgument("{} is {}, expected more than 0 and at most {}", name, seconds,
                         kMaxSeconds);
}

absl::Status CheckPlace(const StarOptions& options) {
  if (options.size == 1) return absl::OkStatus();
  if (options.address.empty() && options.file.empty()) {
    return InvalidArgument("neither an address of rank 0 nor a file is given: give one of them");
  }
  if (options.rank != 0 && !options.address.empty() && !options.file.empty()) {
    return InvalidArgument("both an address ({}) and a file ({}) are given: give one of them",
                           options.address, options.file);
  }
  if (options.address.empty()) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(options.address));
  if (endpoint.port == 0 && options.file.empty()) {
    return InvalidArgument("{} has port 0, where nobody can find rank 0: give a port, or a file",
                           options.address);
  }
  return absl::OkStatus();
}

absl::Status Check(const StarOptions& options) {
  if (options.size < 1 || options.size > kMaxRanks) {
    return InvalidArgument("{} ranks, expected 1 to {}", options.size, kMaxRanks);
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank {} of {}, expected 0 to {}", options.rank, options.size,
                           options.size - 1);
  }
  if (options.job.size() > kMaxJobBytes || Printable(options.job, kMaxJobBytes) != options.job) {
    return InvalidArgument("job '{}' is no name: expected at most {} printable characters",
                           Printable(options.job), kMaxJobBytes);
  }
  size_t bytes = 0;
  for (const std::string& line : options.fingerprint) bytes += line.size() + sizeof(uint32_t);
  if (bytes > kMaxJoinBytes / 2) {
    return InvalidArgument("the fingerprint has {} bytes, the limit is {}", bytes,
                           kMaxJoinBytes / 2);
  }
  TUTTI_RETURN_IF_ERROR(CheckSeconds("timeout_seconds", options.timeout_seconds));
  TUTTI_RETURN_IF_ERROR(CheckSeconds("silence_seconds", options.silence_seconds));
  return CheckPlace(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Star>> Star::Connect(const StarOptions& options) {
  TUTTI_RETURN_IF_ERROR(Check(options));
  return options.rank == 0 ? StarHub::Connect(options) : StarSpoke::Connect(options);
}

}  // namespace tutti::net
