#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/train/optimizers/gradient_list.h"

namespace tutti {

// Entries of a gradient list that one collective operation reduces together: dense gradients of one
// type.
struct GradientBucket {
  DType dtype = kFloat32;
  std::vector<size_t> entries;  // positions in the list, in the order in which they become ready
  int64_t bytes = 0;
};

struct BucketOptions {
  int64_t first_bytes = 64 << 10;  // the first one is small, so that communication begins early
  int64_t bytes = 4 << 20;
  bool operator==(const BucketOptions&) const = default;
};

// Divides the dense gradients of `list` into buckets, in the order in which the reverse pass
// computes them. A bucket is closed once it reaches its size; a gradient is never split. If the
// first bucket is smaller than the others, a gradient that fills one of those alone is not added to
// it. Gradients that are rows, empty, or of unknown shape are left out.
std::vector<GradientBucket> MakeBuckets(std::span<const GradientAndVariable> list,
                                        const BucketOptions& options);

}  // namespace tutti
