#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"

namespace tutti::collective {

// What a piece of memory holds, in symbols: how often every source is in its sum. A source is a
// piece of a rank's data as it was at the start, numbered piece * ranks + rank. Kept as ranges of
// sources that are in it equally often, in ascending order: sums over neighbouring ranks, which is
// what collectives make, are one range. Immutable, so copies are shared.
class Contents {
 public:
  struct Range {
    int64_t begin;
    int64_t end;
    int64_t times;
    bool operator==(const Range&) const = default;
  };

  // Null stands for memory that nothing has been written to: no sum with it means anything.
  using Ptr = std::shared_ptr<const Contents>;

  static Ptr Of(int64_t begin, int64_t end);
  // Null if either is.
  static Ptr Sum(const Ptr& a, const Ptr& b);
  static bool Equal(const Ptr& a, const Ptr& b);
  // "piece 0 of ranks 0-3, 5; 2 times piece 1 of ranks 4", or "nothing".
  static std::string Describe(const Ptr& contents, int ranks);

 private:
  void Append(int64_t begin, int64_t end, int64_t times);

  absl::InlinedVector<Range, 2> ranges_;
};

}  // namespace tutti::collective
