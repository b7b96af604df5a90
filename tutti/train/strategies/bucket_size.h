#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tutti/train/strategies/buckets.h"

namespace tutti {

// How long an all-reduce of so many bytes takes, in seconds; nothing if nobody knows.
using AllReduceSeconds = std::function<std::optional<double>(int64_t bytes)>;

// The sizes of buckets with which `total` bytes of gradients are summed soonest, by what all-reduce
// takes; see bucket_size.cc. The defaults of BucketOptions if nobody knows. A function of its
// arguments alone, so that ranks with the same figures choose alike.
BucketOptions ChooseBucketSize(int64_t total, const AllReduceSeconds& seconds);

}  // namespace tutti
