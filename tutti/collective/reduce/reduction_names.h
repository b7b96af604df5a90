#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "tutti/collective/communicator.h"

namespace tutti::collective {

std::string_view NameOf(Reduction reduction);  // "mean"
std::string_view NameOf(Wire wire);            // "bfloat16"; "as-is"
absl::StatusOr<Reduction> ReductionFromName(std::string_view name);
// Understands "bf16" and "fp16" as well.
absl::StatusOr<Wire> WireFromName(std::string_view name);

}  // namespace tutti::collective
