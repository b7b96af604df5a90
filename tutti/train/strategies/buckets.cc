#include "tutti/train/strategies/buckets.h"

#include <algorithm>
#include <map>

namespace tutti {

std::vector<GradientBucket> MakeBuckets(std::span<const GradientAndVariable> list,
                                        const BucketOptions& options) {
  std::vector<size_t> order;
  for (size_t i = 0; i < list.size(); ++i) {
    const GradientValue& gradient = list[i].gradient;
    if (!gradient.empty() && !gradient.sparse() && list[i].variable.shape().IsFullyKnown()) {
      order.push_back(i);
    }
  }
  // A node's id is its place in the order of computation.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return list[a].gradient.dense.node->id() < list[b].gradient.dense.node->id();
  });
  std::vector<GradientBucket> buckets;
  std::map<DType, size_t> open;  // the bucket of each type that still takes gradients
  for (const size_t i : order) {
    const Output& gradient = list[i].gradient.dense;
    const DType dtype = gradient.dtype();
    const int64_t bytes = list[i].variable.shape().elements() * int64_t(SizeOf(dtype));
    auto found = open.find(dtype);
    if (found != open.end() && found->second == 0 && bytes >= options.bytes &&
        options.first_bytes < options.bytes) {
      open.erase(found);
      found = open.end();
    }
    if (found == open.end()) {
      found = open.emplace(dtype, buckets.size()).first;
      buckets.push_back({.dtype = dtype});
    }
    GradientBucket& bucket = buckets[found->second];
    bucket.entries.push_back(i);
    bucket.bytes += bytes;
    const int64_t most = found->second == 0 ? options.first_bytes : options.bytes;
    if (bucket.bytes >= most) open.erase(found);
  }
  return buckets;
}

}  // namespace tutti
