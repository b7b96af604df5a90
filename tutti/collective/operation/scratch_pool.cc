#include "tutti/collective/operation/scratch_pool.h"

#include <algorithm>
#include <bit>

#include "tutti/base/status.h"

namespace tutti::collective {

absl::StatusOr<Scratch> ScratchPool::Take(size_t bytes) {
  size_t best = free_.size();
  for (size_t i = 0; i < free_.size(); ++i) {
    const size_t size = free_[i]->bytes().size();
    if (size >= bytes && (best == free_.size() || size < free_[best]->bytes().size())) best = i;
  }
  if (best < free_.size()) {
    Scratch scratch = std::move(free_[best]);
    free_[best] = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  // Sizes by powers of two, so that operations of about one size share what is there; above 64 MB
  // that would waste too much.
  constexpr size_t kSmallest = size_t{64} << 10;
  constexpr size_t kLargestRounded = size_t{64} << 20;
  const size_t size = bytes > kLargestRounded ? bytes : std::bit_ceil(std::max(bytes, kSmallest));
  // A larger one replaces a smaller one: there are as many as operations were in flight at once.
  if (!free_.empty()) free_.pop_back();
  return transport_->Allocate(size);
}

void ScratchPool::Return(Scratch scratch) {
  if (scratch != nullptr) free_.push_back(std::move(scratch));
}

}  // namespace tutti::collective
