#include "tutti/data/epoch_order.h"

#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

// SplitMix64: small, well mixed, and the same everywhere, unlike the standard library's shuffles.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound): numbers in the incomplete last stretch are drawn again.
  uint64_t Below(uint64_t bound) {
    const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
    uint64_t drawn = Next();
    while (drawn >= limit) drawn = Next();
    return drawn % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<int64_t> EpochOrder(int64_t samples, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(size_t(samples < 0 ? 0 : samples));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomBits seeds(seed);
  RandomBits bits(seeds.Next() ^ RandomBits(uint64_t(epoch)).Next());
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[bits.Below(i)]);
  return order;
}

}  // namespace tutti
