// Layer normalisation works row by row: the row is read from memory once and stays in the L1 cache
// for the passes over it (mean, variance, result). Batch normalisation works by columns, but reads
// memory row by row, with its sums by column in the L1 cache.
#include "tutti/kernels/cpu/norm_loops.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/norm_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tutti/kernels/cpu/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// How a body of ForEachVector reads and writes: a whole vector, or what is left of a row, with
// zeros behind it.
struct Whole {
  V Load(const float* p) const { return hn::LoadU(D(), p); }
  void Store(V v, float* p) const { hn::StoreU(v, D(), p); }
  V Keep(V v) const { return v; }
};
struct Part {
  size_t count;
  V Load(const float* p) const { return LoadTail(D(), p, count, hn::Zero(D())); }
  void Store(V v, float* p) const { StoreTail(v, D(), p, count); }
  // v with zeros in the lanes behind the row.
  V Keep(V v) const { return hn::IfThenElseZero(hn::FirstN(D(), count), v); }
};
template <typename Body>
HWY_INLINE void ForEachVector(int64_t count, const Body& body) {
  const int64_t lanes = int64_t(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Whole());
  if (i < count) body(i, Part{size_t(count - i)});
}

// The same with two accumulators taking turns, which hides the latency of the additions.
template <typename Body>
HWY_INLINE void ForEachVectorInTurns(int64_t count, V& even, V& odd, const Body& body) {
  const int64_t lanes = int64_t(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    body(i, Whole(), even);
    body(i + lanes, Whole(), odd);
  }
  for (; i + lanes <= count; i += lanes) body(i, Whole(), even);
  if (i < count) body(i, Part{size_t(count - i)}, odd);
}

// Calls body(position in the matrix, column, how to read, four?) for each vector of a row, where
// the body takes the rows at that position: four of them, or one at the end. So sums by column go
// through the L1 cache once in four rows.
template <typename Body>
HWY_INLINE void ForRowsByFour(int64_t rows, int64_t columns, const Body& body) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    ForEachVector(columns,
                  [&](int64_t i, auto io) { body(r * columns + i, i, io, std::true_type()); });
  }
  for (; r < rows; ++r) {
    ForEachVector(columns,
                  [&](int64_t i, auto io) { body(r * columns + i, i, io, std::false_type()); });
  }
}

HWY_INLINE float SumLanes(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

void LayerNormLoop(const float* x, const float* scale, const float* offset, float epsilon,
                   int64_t rows, int64_t columns, float* y, float* mean, float* rstd) {
  const D d;
  const float share = columns > 0 ? 1.0f / float(columns) : 0;
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    V even = hn::Zero(d), odd = hn::Zero(d);
    ForEachVectorInTurns(columns, even, odd,
                         [&](int64_t i, auto io, V& sum) { sum = hn::Add(sum, io.Load(x + i)); });
    mean[r] = SumLanes(hn::Add(even, odd)) * share;
    const V mean_v = hn::Set(d, mean[r]);
    even = odd = hn::Zero(d);
    ForEachVectorInTurns(columns, even, odd, [&](int64_t i, auto io, V& sum) {
      const V centred = io.Keep(hn::Sub(io.Load(x + i), mean_v));
      sum = hn::MulAdd(centred, centred, sum);
    });
    const float variance = SumLanes(hn::Add(even, odd)) * share;
    rstd[r] = 1.0f / std::sqrt(variance + epsilon);
    const V rstd_v = hn::Set(d, rstd[r]);
    ForEachVector(columns, [&](int64_t i, auto io) {
      const V n = hn::Mul(hn::Sub(io.Load(x + i), mean_v), rstd_v);
      io.Store(hn::MulAdd(n, io.Load(scale + i), io.Load(offset + i)), y + i);
    });
  }
}

void LayerNormGradLoop(const float* dy, const float* x, const float* scale, const float* mean,
                       const float* rstd, int64_t rows, int64_t columns, float* dx, float* dscale,
                       float* doffset) {
  const D d;
  const float share = columns > 0 ? 1.0f / float(columns) : 0;
  for (int64_t r = 0; r < rows; ++r, dy += columns, x += columns, dx += columns) {
    const V mean_v = hn::Set(d, mean[r]);
    const V rstd_v = hn::Set(d, rstd[r]);
    V sum_d = hn::Zero(d), sum_dn = hn::Zero(d);
    ForEachVector(columns, [&](int64_t i, auto io) {
      const V g = io.Load(dy + i);
      const V n = hn::Mul(hn::Sub(io.Load(x + i), mean_v), rstd_v);
      const V gn = hn::Mul(g, n);
      io.Store(hn::Add(io.Load(doffset + i), g), doffset + i);
      io.Store(hn::Add(io.Load(dscale + i), gn), dscale + i);
      const V s = io.Load(scale + i);
      sum_d = hn::MulAdd(g, s, sum_d);
      sum_dn = hn::MulAdd(gn, s, sum_dn);
    });
    const V mean_d = hn::Set(d, SumLanes(sum_d) * share);
    const V mean_dn = hn::Set(d, SumLanes(sum_dn) * share);
    ForEachVector(columns, [&](int64_t i, auto io) {
      const V n = hn::Mul(hn::Sub(io.Load(x + i), mean_v), rstd_v);
      const V centred = hn::MulSub(io.Load(dy + i), io.Load(scale + i), mean_d);
      io.Store(hn::Mul(rstd_v, hn::NegMulAdd(n, mean_dn, centred)), dx + i);
    });
  }
}

void ColumnMomentsLoop(const float* x, int64_t rows, int64_t columns, float* mean, float* squares) {
  const D d;
  std::fill_n(mean, columns, 0.0f);
  std::fill_n(squares, columns, 0.0f);
  ForRowsByFour(rows, columns, [&](int64_t at, int64_t i, auto io, auto four) {
    V sum = io.Load(x + at);
    if (four) {
      const V pair = hn::Add(io.Load(x + at + 2 * columns), io.Load(x + at + 3 * columns));
      sum = hn::Add(hn::Add(sum, io.Load(x + at + columns)), pair);
    }
    io.Store(hn::Add(io.Load(mean + i), sum), mean + i);
  });
  const V share = hn::Set(d, rows > 0 ? 1.0f / float(rows) : 0);
  ForEachVector(columns,
                [&](int64_t i, auto io) { io.Store(hn::Mul(io.Load(mean + i), share), mean + i); });
  ForRowsByFour(rows, columns, [&](int64_t at, int64_t i, auto io, auto four) {
    const V mean_v = io.Load(mean + i);
    V sum = io.Load(squares + i);
    for (int64_t r = 0; r < (four ? 4 : 1); ++r) {
      const V centred = hn::Sub(io.Load(x + at + r * columns), mean_v);
      sum = hn::MulAdd(centred, centred, sum);
    }
    io.Store(sum, squares + i);
  });
}

void ScaleColumnsLoop(const float* x, const float* factor, const float* shift, int64_t rows,
                      int64_t columns, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    ForEachVector(columns, [&](int64_t i, auto io) {
      io.Store(hn::MulAdd(io.Load(x + i), io.Load(factor + i), io.Load(shift + i)), y + i);
    });
  }
}

void ColumnGradientSumsLoop(const float* dy, const float* x, const float* mean, int64_t rows,
                            int64_t columns, float* sum, float* centred_sum) {
  std::fill_n(sum, columns, 0.0f);
  std::fill_n(centred_sum, columns, 0.0f);
  ForRowsByFour(rows, columns, [&](int64_t at, int64_t i, auto io, auto four) {
    const V mean_v = io.Load(mean + i);
    V plain = io.Load(sum + i);
    V weighted = io.Load(centred_sum + i);
    for (int64_t r = 0; r < (four ? 4 : 1); ++r) {
      const V g = io.Load(dy + at + r * columns);
      plain = hn::Add(plain, g);
      weighted = hn::MulAdd(g, hn::Sub(io.Load(x + at + r * columns), mean_v), weighted);
    }
    io.Store(plain, sum + i);
    io.Store(weighted, centred_sum + i);
  });
}

void CombineColumnsLoop(const float* dy, const float* x, const float* a, const float* b,
                        const float* c, int64_t rows, int64_t columns, float* dx) {
  for (int64_t r = 0; r < rows; ++r, dy += columns, x += columns, dx += columns) {
    ForEachVector(columns, [&](int64_t i, auto io) {
      const V from_x = hn::MulAdd(io.Load(x + i), io.Load(b + i), io.Load(c + i));
      io.Store(hn::MulAdd(io.Load(dy + i), io.Load(a + i), from_x), dx + i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(LayerNormLoop);
HWY_EXPORT(LayerNormGradLoop);
HWY_EXPORT(ColumnMomentsLoop);
HWY_EXPORT(ScaleColumnsLoop);
HWY_EXPORT(ColumnGradientSumsLoop);
HWY_EXPORT(CombineColumnsLoop);

void LayerNormRows(const float* x, const float* scale, const float* offset, float epsilon,
                   int64_t rows, int64_t columns, float* y, float* mean, float* rstd) {
  HWY_DYNAMIC_DISPATCH(LayerNormLoop)(x, scale, offset, epsilon, rows, columns, y, mean, rstd);
}
void LayerNormGradRows(const float* dy, const float* x, const float* scale, const float* mean,
                       const float* rstd, int64_t rows, int64_t columns, float* dx, float* dscale,
                       float* doffset) {
  HWY_DYNAMIC_DISPATCH(LayerNormGradLoop)
  (dy, x, scale, mean, rstd, rows, columns, dx, dscale, doffset);
}
void ColumnMoments(const float* x, int64_t rows, int64_t columns, float* mean, float* squares) {
  HWY_DYNAMIC_DISPATCH(ColumnMomentsLoop)(x, rows, columns, mean, squares);
}
void ScaleColumns(const float* x, const float* factor, const float* shift, int64_t rows,
                  int64_t columns, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleColumnsLoop)(x, factor, shift, rows, columns, y);
}
void ColumnGradientSums(const float* dy, const float* x, const float* mean, int64_t rows,
                        int64_t columns, float* sum, float* centred_sum) {
  HWY_DYNAMIC_DISPATCH(ColumnGradientSumsLoop)(dy, x, mean, rows, columns, sum, centred_sum);
}
void CombineColumns(const float* dy, const float* x, const float* a, const float* b, const float* c,
                    int64_t rows, int64_t columns, float* dx) {
  HWY_DYNAMIC_DISPATCH(CombineColumnsLoop)(dy, x, a, b, c, rows, columns, dx);
}

}  // namespace tutti
#endif  // HWY_ONCE
