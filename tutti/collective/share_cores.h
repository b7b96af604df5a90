#pragma once

#include "absl/status/status.h"
#include "tutti/net/coordination/star.h"

namespace tutti::collective {

// Divides the cores of a host among the ranks that run there, and keeps this process on its share.
// Without this each rank that nobody pinned would start as many threads as the host has cores, and
// the threads of all ranks would spin against each other. Where a launcher has divided the cores
// already nothing changes. The first rank of a host logs what was divided. All ranks call it at the
// same time, before they open links and start threads that compute.
absl::Status ShareCores(net::Star& star, int rank);

}  // namespace tutti::collective
