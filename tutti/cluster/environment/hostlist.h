#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

// The hosts that Slurm's short form names, in its order: "n[01-03,7],login" is n01, n02, n03, n7
// and login. Several brackets in one name multiply. INVALID_ARGUMENT for what is no such list, or
// names more than a million hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(std::string_view list);

}  // namespace tutti
