#include "tutti/kernels/shape/broadcast.h"

#include <utility>

namespace tutti {

Broadcast::Broadcast(const Shape& output, std::span<const Shape> inputs)
    : elements_(output.elements()) {
  if (elements_ == 0) {  // its other dimensions may be too large for strides
    rank_ = 1;
    dims_[0] = 0;
    for (size_t i = 0; i < inputs.size(); ++i) strides_[i][0] = 1;
    return;
  }
  // Built from the last dimension to the first, then turned around.
  std::array<int64_t, kMostInputs> dense{};  // the stride an input has if this dimension moves it
  dense.fill(1);
  int rank = 0;
  for (int from_end = 1; from_end <= output.rank(); ++from_end) {
    const int64_t size = output.dim(-from_end);
    if (size == 1) continue;
    std::array<int64_t, kMostInputs> stride{};
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t own = from_end <= inputs[i].rank() ? inputs[i].dim(-from_end) : 1;
      stride[i] = own == 1 ? 0 : dense[i];
      dense[i] *= own;
    }
    bool joins = rank > 0;
    for (size_t i = 0; joins && i < inputs.size(); ++i) {
      joins = stride[i] == strides_[i][rank - 1] * dims_[rank - 1];
    }
    if (joins) {
      dims_[rank - 1] *= size;
      continue;
    }
    dims_[rank] = size;
    for (int i = 0; i < kMostInputs; ++i) strides_[i][rank] = stride[i];
    ++rank;
  }
  if (rank == 0) {
    dims_[0] = 1;
    for (size_t i = 0; i < inputs.size(); ++i) strides_[i][0] = 1;
    rank = 1;
  }
  rank_ = rank;
  for (int low = 0, high = rank - 1; low < high; ++low, --high) {
    std::swap(dims_[low], dims_[high]);
    for (auto& strides : strides_) std::swap(strides[low], strides[high]);
  }
}

}  // namespace tutti
