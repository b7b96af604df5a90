#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

// The order in which epoch `epoch` visits `samples` samples: a permutation that depends on nothing
// but the arguments, on every machine.
std::vector<int64_t> EpochOrder(int64_t samples, uint64_t seed, int64_t epoch);

}  // namespace tutti
