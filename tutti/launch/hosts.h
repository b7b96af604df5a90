#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

// A host that ssh reaches, and how many tasks it takes.
struct HostSlots {
  std::string host;  // as ssh takes it: "b", "user@10.0.0.7"
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:2,b:2,c": what --hosts takes. An IPv6 address stands in brackets: "[fd77::1]:2".
// INVALID_ARGUMENT that says what was expected.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text);
// A line a host, as Open MPI ("a slots=2") and MPICH ("a:2") have it; # begins a comment.
absl::StatusOr<std::vector<HostSlots>> ReadHostfile(const std::string& path);

int SlotsOf(const std::vector<HostSlots>& hosts);

// The host of each of so many tasks: the first takes as many as it has slots, and so on.
// INVALID_ARGUMENT when there are too few slots.
absl::StatusOr<std::vector<std::string>> AssignHosts(const std::vector<HostSlots>& hosts,
                                                     int tasks);

}  // namespace tutti
