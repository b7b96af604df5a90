#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/team.h"
#include "tutti/tensor/shape.h"

namespace tutti {

// A copy of an n-dimensional block between two places in memory whose elements lie at given
// distances. Transpose, Slice, Concat, Pad, Tile and their like are all one or several of these.
// Strides count elements; a source stride may be 0 (repeat) or negative (turn around).
struct StridedCopy {
  static constexpr int kMost = 2 * kMaxRank;  // Tile makes two dimensions out of each
  int rank = 0;
  std::array<int64_t, kMost> dims{};
  std::array<int64_t, kMost> source{};
  std::array<int64_t, kMost> target{};

  void Add(int64_t dim, int64_t source_stride, int64_t target_stride) {
    dims[rank] = dim;
    source[rank] = source_stride;
    target[rank] = target_stride;
    ++rank;
  }
};

// Runs a copy of elements of `size` bytes (1, 2, 4 or 8). `from` and `to` are where the element of
// index 0, 0, ... lies.
using CopyFunction = void (*)(const Team& team, const StridedCopy& copy, size_t size,
                              const std::byte* from, std::byte* to);

// One element after the other.
void PlainStridedCopy(const Team& team, const StridedCopy& copy, size_t size, const std::byte* from,
                      std::byte* to);

// Calls `function` with a number of as many bytes as an element has: function(uint32_t()).
template <typename Function>
void WithElementOfSize(size_t size, const Function& function) {
  switch (size) {
    case 1:
      return function(uint8_t{});
    case 2:
      return function(uint16_t{});
    case 4:
      return function(uint32_t{});
    default:
      return function(uint64_t{});
  }
}

// The distance, in elements, between neighbours along each dimension of a row-major tensor.
std::array<int64_t, kMaxRank> RowMajorStrides(const Shape& shape);

}  // namespace tutti
