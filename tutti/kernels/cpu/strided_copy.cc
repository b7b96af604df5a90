// A strided copy as fast as memory allows, whatever its strides.
//
// First the copy is made as simple as it can be: dimensions of 1 go, neighbours that lie one behind
// the other in both places become one. Then there are three cases:
//   runs     the last dimension lies side by side in both places (Concat, Slice, the exchange of
//            [B, S, H, D] and [B, H, S, D]): memcpy of each run;
//   turns    it lies side by side in the target, and another dimension does in the source (a matrix
//            transpose): strips of kTile columns, in tiles of kTile x kTile that stay in the first
//            cache, and for 4-byte elements 4 x 4 in registers;
//   the rest (every second element, reversed, repeated): a loop over single elements.
// The outer dimensions are counted off by an odometer that can start anywhere, so that each core
// takes a range of them.
#include "tutti/kernels/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

constexpr int64_t kTile = 32;
constexpr int64_t kBytesPerCore = 1 << 15;  // less than this is not worth another core

StridedCopy Simplified(const StridedCopy& copy) {
  StridedCopy result;
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.dims[i] == 1) continue;
    const int last = result.rank - 1;
    if (last >= 0 && result.source[last] == copy.source[i] * copy.dims[i] &&
        result.target[last] == copy.target[i] * copy.dims[i]) {
      result.dims[last] *= copy.dims[i];
      result.source[last] = copy.source[i];
      result.target[last] = copy.target[i];
    } else {
      result.Add(copy.dims[i], copy.source[i], copy.target[i]);
    }
  }
  if (result.rank == 0) result.Add(1, 1, 1);
  return result;
}

// Counts through the first `rank` dimensions and keeps both positions, in elements.
class Odometer {
 public:
  Odometer(const StridedCopy& copy, int rank, int64_t start) : copy_(copy), rank_(rank) {
    for (int i = rank - 1; i >= 0; --i) {
      at_[i] = start % copy.dims[i];
      start /= copy.dims[i];
      source_ += at_[i] * copy.source[i];
      target_ += at_[i] * copy.target[i];
    }
  }
  int64_t source() const { return source_; }
  int64_t target() const { return target_; }
  void Next() {
    for (int i = rank_ - 1; i >= 0; --i) {
      source_ += copy_.source[i];
      target_ += copy_.target[i];
      if (++at_[i] < copy_.dims[i]) return;
      source_ -= copy_.source[i] * copy_.dims[i];
      target_ -= copy_.target[i] * copy_.dims[i];
      at_[i] = 0;
    }
  }

 private:
  const StridedCopy& copy_;
  int rank_;
  std::array<int64_t, StridedCopy::kMost> at_{};
  int64_t source_ = 0;
  int64_t target_ = 0;
};

int64_t OuterCount(const StridedCopy& copy, int rank) {
  return ProductOf(std::span(copy.dims).first(size_t(rank)));
}

template <typename T>
void CopyRuns(const Team& team, const StridedCopy& copy, const T* from, T* to) {
  const int outer = copy.rank - 1;
  const int64_t run = copy.dims[outer];
  const int64_t bytes = run * int64_t(sizeof(T));
  if (outer == 0) {
    team.ParallelFor(run, kBytesPerCore / int64_t(sizeof(T)), [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, size_t(end - begin) * sizeof(T));
    });
    return;
  }
  team.ParallelFor(OuterCount(copy, outer), DivideRoundUp(kBytesPerCore, bytes),
                   [&](int64_t begin, int64_t end) {
                     Odometer at(copy, outer, begin);
                     if (bytes <= 32) {
                       // A call of memcpy costs more than such a run.
                       for (int64_t i = begin; i < end; ++i, at.Next()) {
                         const T* source = from + at.source();
                         T* target = to + at.target();
                         for (int64_t j = 0; j < run; ++j) target[j] = source[j];
                       }
                       return;
                     }
                     for (int64_t i = begin; i < end; ++i, at.Next()) {
                       std::memcpy(to + at.target(), from + at.source(), size_t(bytes));
                     }
                   });
}

// to[i * to_stride + j] = from[j * from_stride + i], for i below rows and j below columns.
template <typename T>
void TurnPlain(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = from[j * from_stride + i];
  }
}

// Vectors of the compiler's own: 16 bytes are there on every machine, so no dispatch is needed.
typedef uint32_t Four __attribute__((vector_size(16)));

void Turn4x4(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  Four row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * from_stride, sizeof(Four));
  const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Four turned[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                          __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                          __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                          __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &turned[i], sizeof(Four));
}

// A whole tile by way of a small buffer: every line of the source is read once from end to end, and
// so is every line of the target written. Straight from one to the other, rows whose distance is a
// large power of two push each other out of the cache ([8, 128, 4, 64] to [8, 4, 64, 128] on one
// core: 113 us straight, 90 us so).
void TurnWholeTile(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  alignas(64) uint32_t buffer[kTile * kTile];
  for (int64_t j = 0; j < kTile; j += 4) {
    for (int64_t i = 0; i < kTile; i += 4) {
      Turn4x4(from + j * from_stride + i, from_stride, buffer + i * kTile + j, kTile);
    }
  }
  for (int64_t i = 0; i < kTile; ++i) {
    std::memcpy(to + i * to_stride, buffer + i * kTile, kTile * sizeof(uint32_t));
  }
}

template <typename T>
void TurnTile(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
              int64_t columns) {
  if constexpr (sizeof(T) == 4) {
    if (rows == kTile && columns == kTile) return TurnWholeTile(from, from_stride, to, to_stride);
    const int64_t whole_rows = rows & ~int64_t{3};
    const int64_t whole_columns = columns & ~int64_t{3};
    for (int64_t i = 0; i < whole_rows; i += 4) {
      for (int64_t j = 0; j < whole_columns; j += 4) {
        Turn4x4(from + j * from_stride + i, from_stride, to + i * to_stride + j, to_stride);
      }
    }
    TurnPlain(from + whole_columns * from_stride, from_stride, to + whole_columns, to_stride,
              whole_rows, columns - whole_columns);
    TurnPlain(from + whole_rows, from_stride, to + whole_rows * to_stride, to_stride,
              rows - whole_rows, columns);
  } else {
    TurnPlain(from, from_stride, to, to_stride, rows, columns);
  }
}

// `turned` is the dimension that lies side by side in the source; the last one does in the target.
template <typename T>
void CopyTurned(const Team& team, const StridedCopy& copy, int turned, const T* from, T* to) {
  const int last = copy.rank - 1;
  StridedCopy outer;
  for (int i = 0; i < last; ++i) {
    if (i != turned) outer.Add(copy.dims[i], copy.source[i], copy.target[i]);
  }
  const int64_t rows = copy.dims[turned];
  const int64_t columns = copy.dims[last];
  const int64_t strips = DivideRoundUp(rows, kTile);
  const int64_t strip_bytes = std::min(rows, kTile) * columns * int64_t(sizeof(T));
  team.ParallelFor(OuterCount(outer, outer.rank) * strips,
                   DivideRoundUp(kBytesPerCore, strip_bytes), [&](int64_t begin, int64_t end) {
                     Odometer at(outer, outer.rank, begin / strips);
                     int64_t strip = begin % strips;
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t row = strip * kTile;
                       const T* const source = from + at.source() + row;
                       T* const target = to + at.target() + row * copy.target[turned];
                       for (int64_t j = 0; j < columns; j += kTile) {
                         TurnTile(source + j * copy.source[last], copy.source[last], target + j,
                                  copy.target[turned], std::min(kTile, rows - row),
                                  std::min(kTile, columns - j));
                       }
                       if (++strip == strips) {
                         strip = 0;
                         at.Next();
                       }
                     }
                   });
}

template <typename T>
void CopySingle(const Team& team, const StridedCopy& copy, const T* from, T* to) {
  const int outer = copy.rank - 1;
  const int64_t count = copy.dims[outer];
  const int64_t source = copy.source[outer];
  const int64_t target = copy.target[outer];
  const int64_t grain = DivideRoundUp(kBytesPerCore, count * int64_t(sizeof(T)));
  team.ParallelFor(OuterCount(copy, outer), grain, [&](int64_t begin, int64_t end) {
    Odometer at(copy, outer, begin);
    for (int64_t i = begin; i < end; ++i, at.Next()) {
      const T* const s = from + at.source();
      T* const t = to + at.target();
      if (source == 0 && target == 1) {
        std::fill_n(t, count, *s);
      } else {
        for (int64_t j = 0; j < count; ++j) t[j * target] = s[j * source];
      }
    }
  });
}

template <typename T>
void Copy(const Team& team, const StridedCopy& copy, const T* from, T* to) {
  const int last = copy.rank - 1;
  if (copy.target[last] == 1 && copy.source[last] == 1) return CopyRuns(team, copy, from, to);
  if (copy.target[last] == 1) {
    for (int i = 0; i < last; ++i) {
      if (copy.source[i] == 1 && copy.dims[i] >= 4) return CopyTurned(team, copy, i, from, to);
    }
  }
  CopySingle(team, copy, from, to);
}

}  // namespace

void FastStridedCopy(const Team& team, const StridedCopy& copy, size_t size, const std::byte* from,
                     std::byte* to) {
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.dims[i] == 0) return;
  }
  const StridedCopy simple = Simplified(copy);
  WithElementOfSize(size, [&]<typename T>(T) {
    Copy(team, simple, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  });
}

}  // namespace tutti
