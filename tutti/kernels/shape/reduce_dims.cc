#include "tutti/kernels/shape/reduce_dims.h"

namespace tutti {

namespace {

// Next to a dimension of 0 the product of the others may pass 2^63. It wraps around here and is
// never used, since one of the two counts is 0.
int64_t WrappingMul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

}  // namespace

ReduceDims ReduceDims::OfFlags(const Shape& shape, const std::array<bool, kMaxRank>& reduced) {
  ReduceDims result;
  int64_t stride = 1;
  // From the innermost out, then turned around.
  std::array<Dim, kMaxRank> merged;
  int count = 0;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int64_t size = shape.dim(i);
    int64_t& count_of_kind = reduced[i] ? result.elements : result.outputs;
    count_of_kind = WrappingMul(count_of_kind, size);
    if (size == 1) continue;
    if (count > 0 && merged[count - 1].reduced == reduced[i]) {
      merged[count - 1].size = WrappingMul(merged[count - 1].size, size);
    } else {
      merged[count++] = {size, stride, reduced[i]};
    }
    stride = WrappingMul(stride, size);
  }
  for (int i = 0; i < count; ++i) result.dims[i] = merged[count - 1 - i];
  result.rank = count;
  return result;
}

ReduceDims ReduceDims::OfAxes(const Shape& shape, std::span<const int64_t> axes) {
  std::array<bool, kMaxRank> reduced{};
  if (axes.empty()) reduced.fill(true);
  for (const int64_t axis : axes) reduced[axis < 0 ? axis + shape.rank() : axis] = true;
  return OfFlags(shape, reduced);
}

ReduceDims ReduceDims::OfTarget(const Shape& shape, const Shape& target) {
  std::array<bool, kMaxRank> reduced{};
  const int missing = shape.rank() - target.rank();
  for (int i = 0; i < shape.rank(); ++i) {
    reduced[i] = i < missing || (target.dim(i - missing) == 1 && shape.dim(i) != 1);
  }
  return OfFlags(shape, reduced);
}

bool BroadcastsTo(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  for (int i = 1; i <= small.rank(); ++i) {
    if (small.dim(-i) != 1 && small.dim(-i) != large.dim(-i)) return false;
  }
  return true;
}

}  // namespace tutti
