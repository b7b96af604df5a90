// How large should buckets be? With T(s) the time of an all-reduce of s bytes, K bytes in buckets
// of s take K/s T(s), one after the other. Large buckets waste little on what every operation
// costs. But the last bucket has nothing left to hide behind: the step waits T(s) for it in any
// case, and that wants small ones. So s is where
//
//   K/s (T(s) + c) + T(s)
//
// is least; c is what an operation costs beside the links. With T(s) = l + s/B this is near
// sqrt(K (l + c) B): 2 to 4 MB for 50 MB between four hosts at 1 Gbit/s, 256 KB for 300 KB in
// shared memory. T comes from the cost model, which replays the schedule that the tuner would take.
//
// The first bucket is small where many follow, so that the links get work early; where few do, one
// more operation costs more than it brings.
#include "tutti/train/strategies/bucket_size.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr int64_t kSmallest = 64 << 10;
constexpr int64_t kLargest = 64 << 20;
constexpr int64_t kMany = 8;
// Of a node and of an operation on both ends. An estimate: three times what `tutti bench allreduce
// --bytes 4` takes on one host.
constexpr double kStartSeconds = 4e-6;

}  // namespace

BucketOptions ChooseBucketSize(int64_t total, const AllReduceSeconds& seconds) {
  BucketOptions best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    const int64_t filled = std::min(bytes, std::max<int64_t>(total, 1));
    const std::optional<double> one = seconds(filled);
    if (!one) return {};
    const double buckets = double(total) / double(filled);
    const double all = buckets * (*one + kStartSeconds) + *one;
    if (all < least) {
      least = all;
      best.bytes = bytes;
    }
    if (filled == total) break;
  }
  best.first_bytes = total >= kMany * best.bytes ? std::min(kSmallest, best.bytes) : best.bytes;
  return best;
}

}  // namespace tutti
