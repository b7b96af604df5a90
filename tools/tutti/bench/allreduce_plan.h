#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/tutti/bench/allreduce.h"

namespace tutti::tools {

// What every rank would say of the options, said once. INVALID_ARGUMENT or NOT_FOUND begins with
// the option.
absl::Status CheckOptions(const AllReduceBench& bench);

// The sizes of a benchmark in bytes: whole numbers of float32, at least one.
absl::StatusOr<std::vector<int64_t>> SizesOf(const AllReduceBench& bench);

// RESOURCE_EXHAUSTED if so many ranks on this host need more memory for the largest size than the
// `available` bytes: it says how much, and what can be asked for.
absl::Status CheckFits(const AllReduceBench& bench, int ranks, int64_t available);

// Bytes of memory that programs on this host can still get without swapping; nothing is known: the
// largest number.
int64_t AvailableMemory();

}  // namespace tutti::tools
