#include "tutti/data/batcher.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "tutti/base/status.h"

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

Batcher::Batcher(std::vector<Tensor> columns, const BatcherOptions& options)
    : columns_(std::move(columns)), options_(options) {
  if (columns_.empty()) ThrowInvalidArgument("Batcher: no columns given");
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Tensor& column = columns_[i];
    if (!column.valid() || column.shape().rank() < 1) {
      ThrowInvalidArgument(fmt::format(
          "Batcher: column {} is {}; expected a tensor with a first dimension of samples", i,
          column.valid() ? column.shape().ToString() : "invalid"));
    }
    if (column.shape()[0] != columns_[0].shape()[0]) {
      ThrowInvalidArgument(fmt::format("Batcher: column {} has {} rows, column 0 has {}", i,
                                       column.shape()[0], columns_[0].shape()[0]));
    }
  }
  samples_ = columns_[0].shape()[0];
  if (samples_ == 0) ThrowInvalidArgument("Batcher: the columns have no rows");
}

void Batcher::Seek(int64_t position) {
  if (position < 0) {
    ThrowInvalidArgument(fmt::format("Batcher: position {} is negative", position));
  }
  position_ = position;
}

int64_t Batcher::RowAt(int64_t position) {
  const int64_t index = position % samples_;
  if (!options_.shuffle) return index;
  if (const int64_t epoch = position / samples_; epoch != epoch_) {
    order_ = EpochOrder(samples_, options_.seed, epoch);
    epoch_ = epoch;
  }
  return order_[size_t(index)];
}

std::vector<Tensor> Batcher::Next(int64_t count) {
  if (count <= 0 || count > std::numeric_limits<int64_t>::max() - position_) {
    ThrowInvalidArgument(fmt::format("Batcher: {} samples asked for; expected at least 1", count));
  }
  std::vector<Tensor> batch;
  for (const Tensor& column : columns_) {
    batch.emplace_back(column.dtype(), column.shape().WithDim(0, count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = RowAt(position_ + i);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const size_t bytes = columns_[c].bytes() / size_t(samples_);
      if (bytes == 0) continue;
      std::memcpy(static_cast<char*>(batch[c].raw()) + size_t(i) * bytes,
                  static_cast<const char*>(columns_[c].raw()) + size_t(row) * bytes, bytes);
    }
  }
  position_ += count;
  return batch;
}

}  // namespace tutti
