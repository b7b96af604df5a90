#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tutti/tensor/shape.h"

namespace tutti {

// How an element-wise op walks inputs of which some are repeated. Neighbouring dimensions that all
// inputs pass through alike are joined, so that equal shapes give one row, [m, n] with [n] gives m
// rows, and within a row every input either moves along (step 1) or stands still (step 0). A plain
// value without heap memory.
class Broadcast {
 public:
  static constexpr int kMostInputs = 3;

  Broadcast() = default;
  // REQUIRES: shapes are known, at most kMostInputs inputs, each of which broadcasts to `output`.
  Broadcast(const Shape& output, std::span<const Shape> inputs);

  int64_t elements() const { return elements_; }
  int64_t row_size() const { return dims_[rank_ - 1]; }
  int step(int input) const { return int(strides_[input][rank_ - 1]); }

  // Dimensions and strides after joining, at least one; for code that looks at the pattern.
  int rank() const { return rank_; }
  int64_t dim(int d) const { return dims_[d]; }
  int64_t stride(int input, int d) const { return strides_[input][d]; }

  using Offsets = std::array<int64_t, kMostInputs>;

  // Calls run(position, count, offsets) for the parts of rows that make up output elements
  // [begin, end), in order: `count` elements from `position` on, whose input i starts at element
  // offsets[i].
  template <typename Run>
  void ForEachRun(int64_t begin, int64_t end, const Run& run) const {
    if (begin >= end) return;
    const int64_t row_size = dims_[rank_ - 1];
    std::array<int64_t, kMaxRank> index{};
    int64_t rest = begin;
    for (int d = rank_ - 1; d >= 0; --d) {
      index[d] = rest % dims_[d];
      rest /= dims_[d];
    }
    Offsets offsets{};
    for (int i = 0; i < kMostInputs; ++i) {
      for (int d = 0; d < rank_; ++d) offsets[i] += index[d] * strides_[i][d];
    }
    int64_t column = index[rank_ - 1];
    while (true) {
      const int64_t count = row_size - column < end - begin ? row_size - column : end - begin;
      run(begin, count, offsets);
      begin += count;
      if (begin >= end) return;
      // To the start of the next row.
      for (int i = 0; i < kMostInputs; ++i) offsets[i] -= column * strides_[i][rank_ - 1];
      column = 0;
      for (int d = rank_ - 2; d >= 0; --d) {
        for (int i = 0; i < kMostInputs; ++i) offsets[i] += strides_[i][d];
        if (++index[d] < dims_[d]) break;
        for (int i = 0; i < kMostInputs; ++i) offsets[i] -= dims_[d] * strides_[i][d];
        index[d] = 0;
      }
    }
  }

 private:
  int rank_ = 1;
  int64_t elements_ = 0;
  std::array<int64_t, kMaxRank> dims_{};
  std::array<std::array<int64_t, kMaxRank>, kMostInputs> strides_{};
};

}  // namespace tutti
