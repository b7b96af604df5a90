#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collective {

// Elements [begin, begin + count) of an operation's data.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Range&) const = default;
};

// Where the pieces of an operation lie: chunk by chunk, each cut into segments (see Schedule). A
// plain value; every rank that is given the same numbers cuts alike.
class PieceLayout {
 public:
  PieceLayout() = default;
  // `total` elements cut evenly. Where pieces are large enough, they begin at multiples of a cache
  // line (64 bytes from the start), so that two ranks never write into one line.
  static PieceLayout Even(int64_t total, int chunks, int segments, int64_t element_bytes);
  // Chunks of `count` elements each.
  static PieceLayout Equal(int64_t count, int chunks, int segments, int64_t element_bytes);
  // Chunk c has counts[c] elements. Takes over the vector's memory of `*this` where it can.
  void SetVarying(std::span<const int64_t> counts, int segments, int64_t element_bytes);

  // The elements of a data piece. REQUIRES: 0 <= piece < chunks * segments.
  Range Of(int piece) const {
    if (segments_ > 1 || !begins_.empty()) return OfSegment(piece);
    const int64_t first = std::min(piece * chunk_, total_);
    return {first, std::min(chunk_, total_ - first)};
  }
  int64_t total() const { return total_; }

 private:
  Range OfSegment(int piece) const;  // with divisions, which small operations feel

  int64_t total_ = 0;
  int64_t chunk_ = 0;    // elements of a chunk (the last ones may have fewer)
  int64_t segment_ = 0;  // elements of a segment
  int64_t line_ = 1;     // elements of a cache line
  int segments_ = 1;
  std::vector<int64_t> begins_;  // of the chunks, and the end; empty unless they vary
};

}  // namespace tutti::collective
