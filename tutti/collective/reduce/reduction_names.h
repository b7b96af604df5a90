#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/collective/communicator.h"

namespace tutti::collective {

std::string_view NameOf(Reduction reduction);  // "mean"
std::string_view NameOf(Wire wire);            // "bf16"; "as-is"
absl::StatusOr<Reduction> ReductionFromName(std::string_view name);
// Understands "bfloat16" and "float16" as well.
absl::StatusOr<Wire> WireFromName(std::string_view name);

}  // namespace tutti::collective
