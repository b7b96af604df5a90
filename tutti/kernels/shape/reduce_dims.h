#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tutti/tensor/shape.h"

namespace tutti {

// A reduction with its dimensions sorted: those that stay and those that go, each list from the
// outermost to the innermost, neighbours of one kind merged, dimensions of 1 left out. An element
// of the input lies at (offset by kept indices) + (offset by reduced indices).
struct ReduceDims {
  struct Dim {
    int64_t size = 1;
    int64_t stride = 0;  // in elements
    bool reduced = false;
  };

  // All dimensions in the input's order, merged; kinds alternate.
  std::array<Dim, kMaxRank> dims;
  int rank = 0;
  int64_t outputs = 1;   // how many results
  int64_t elements = 1;  // how many elements each of them is made from

  // `axes` as in the attribute: negative from the end, none given means all. REQUIRES: shape is
  // fully known and the axes fit it.
  static ReduceDims OfAxes(const Shape& shape, std::span<const int64_t> axes);
  // What SumToShape sums: dimensions that are missing or 1 in `target`. REQUIRES: target broadcasts
  // to shape.
  static ReduceDims OfTarget(const Shape& shape, const Shape& target);

 private:
  static ReduceDims OfFlags(const Shape& shape, const std::array<bool, kMaxRank>& reduced);
};

// Counts through the kept or the reduced dimensions of a ReduceDims and tells where in the input
// each of them stands.
class DimsCounter {
 public:
  DimsCounter(const ReduceDims& dims, bool reduced) {
    for (int i = 0; i < dims.rank; ++i) {
      if (dims.dims[i].reduced == reduced) dims_[rank_++] = dims.dims[i];
    }
  }

  int64_t offset() const { return offset_; }
  void Next() {
    for (int i = rank_ - 1; i >= 0; --i) {
      offset_ += dims_[i].stride;
      if (++index_[i] < dims_[i].size) return;
      offset_ -= dims_[i].stride * dims_[i].size;
      index_[i] = 0;
    }
  }
  // Goes to the n-th position. REQUIRES: no dimension is 0.
  void Seek(int64_t n) {
    offset_ = 0;
    for (int i = rank_ - 1; i >= 0; --i) {
      index_[i] = n % dims_[i].size;
      n /= dims_[i].size;
      offset_ += index_[i] * dims_[i].stride;
    }
  }

 private:
  std::array<ReduceDims::Dim, kMaxRank> dims_;
  std::array<int64_t, kMaxRank> index_{};
  int rank_ = 0;
  int64_t offset_ = 0;
};

// Does `small` broadcast to `large` by the rules of NumPy? REQUIRES: both are fully known.
bool BroadcastsTo(const Shape& small, const Shape& large);

}  // namespace tutti
