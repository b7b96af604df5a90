// Two shapes of loop carry all reductions. A run is contiguous: eight vectors of partial results
// hide the latency of the additions and are folded at the end. Columns are reduced row by row, so
// that memory is read in order: four rows at a time are added up and put onto a row of partial
// results that stays in the L1 cache; narrow matrices are read as if sixteen rows were one, since a
// row shorter than a vector would waste most of it.
#include "tutti/kernels/cpu/reduce_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/reduce_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "tutti/kernels/cpu/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Each kind: its neutral element, taking an element, and joining two partial results.
struct SumKind {
  static double Join(double a, double b) { return a + b; }
  static constexpr float kStart = 0;
  static V Take(V partial, V x) { return hn::Add(partial, x); }
  static V Join(V a, V b) { return hn::Add(a, b); }
};
struct SumOfSquaresKind {
  static double Join(double a, double b) { return a + b; }
  static constexpr float kStart = 0;
  static V Take(V partial, V x) { return hn::MulAdd(x, x, partial); }
  static V Join(V a, V b) { return hn::Add(a, b); }
};
struct ProdKind {
  static double Join(double a, double b) { return a * b; }
  static constexpr float kStart = 1;
  static V Take(V partial, V x) { return hn::Mul(partial, x); }
  static V Join(V a, V b) { return hn::Mul(a, b); }
};
// A NaN wins, and is never replaced since nothing is greater.
struct MaxKind {
  static double Join(double a, double b) { return b > a || std::isnan(b) ? b : a; }
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static V Take(V partial, V x) {
    return hn::IfThenElse(hn::Or(hn::Gt(x, partial), hn::IsNaN(x)), x, partial);
  }
  static V Join(V a, V b) { return Take(a, b); }
};
struct MinKind {
  static double Join(double a, double b) { return b < a || std::isnan(b) ? b : a; }
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static V Take(V partial, V x) {
    return hn::IfThenElse(hn::Or(hn::Lt(x, partial), hn::IsNaN(x)), x, partial);
  }
  static V Join(V a, V b) { return Take(a, b); }
};

template <typename Body>
void VisitKind(ReduceOp op, const Body& body) {
  switch (op) {
    case ReduceOp::kSum:
      return body(SumKind());
    case ReduceOp::kSumOfSquares:
      return body(SumOfSquaresKind());
    case ReduceOp::kProd:
      return body(ProdKind());
    case ReduceOp::kMax:
      return body(MaxKind());
    case ReduceOp::kMin:
      return body(MinKind());
  }
}

// The lanes of a partial result as one number, in a fixed order.
template <typename Kind>
double FoldLanes(V partial) {
  const D d;
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(partial, d, lanes);
  double result = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) result = Kind::Join(result, lanes[i]);
  return result;
}

template <typename Kind>
V ReduceBlock(const float* HWY_RESTRICT x, int64_t length) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const V start = hn::Set(d, Kind::kStart);
  V a = start, b = start, c = start, e = start;
  int64_t i = 0;
  if (length >= 4 * lanes) {
    V f = start, g = start, h = start, k = start;
    for (; i + 8 * lanes <= length; i += 8 * lanes) {
      a = Kind::Take(a, hn::LoadU(d, x + i));
      b = Kind::Take(b, hn::LoadU(d, x + i + lanes));
      c = Kind::Take(c, hn::LoadU(d, x + i + 2 * lanes));
      e = Kind::Take(e, hn::LoadU(d, x + i + 3 * lanes));
      f = Kind::Take(f, hn::LoadU(d, x + i + 4 * lanes));
      g = Kind::Take(g, hn::LoadU(d, x + i + 5 * lanes));
      h = Kind::Take(h, hn::LoadU(d, x + i + 6 * lanes));
      k = Kind::Take(k, hn::LoadU(d, x + i + 7 * lanes));
    }
    a = Kind::Join(a, f);
    b = Kind::Join(b, g);
    c = Kind::Join(c, h);
    e = Kind::Join(e, k);
  }
  for (; i + lanes <= length; i += lanes) a = Kind::Take(a, hn::LoadU(d, x + i));
  if (i < length) b = Kind::Take(b, LoadTail(d, x + i, size_t(length - i), start));
  return Kind::Join(Kind::Join(a, b), Kind::Join(c, e));
}

double RunLoop(ReduceOp op, const float* x, int64_t length) {
  double result = ReduceStart(op);
  VisitKind(op, [&](auto kind) {
    using Kind = decltype(kind);
    for (int64_t begin = 0; begin < length; begin += kReduceBlock) {
      const V block = ReduceBlock<Kind>(x + begin, std::min(kReduceBlock, length - begin));
      result = Kind::Join(result, FoldLanes<Kind>(block));
    }
  });
  return result;
}

void RunsLoop(ReduceOp op, const float* x, int64_t stride, int64_t length, int64_t count,
              float* results) {
  if (length > kReduceBlock) {
    for (int64_t i = 0; i < count; ++i) results[i] = float(RunLoop(op, x + i * stride, length));
    return;
  }
  VisitKind(op, [&](auto kind) {
    using Kind = decltype(kind);
    for (int64_t i = 0; i < count; ++i) {
      results[i] = float(FoldLanes<Kind>(ReduceBlock<Kind>(x + i * stride, length)));
    }
  });
}

// A float is not finite if all bits of its exponent are set: if the exponent is the largest one.
bool AllFiniteLoop(const float* HWY_RESTRICT x, int64_t length) {
  const D d;
  const hn::RebindToSigned<D> di;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto exponent = hn::Set(di, 0x7F800000);
  const auto take = [&](auto largest, V value) {
    return hn::Max(largest, hn::And(hn::BitCast(di, value), exponent));
  };
  for (int64_t begin = 0; begin < length; begin += kReduceBlock) {
    const int64_t end = std::min(begin + kReduceBlock, length);
    auto a = hn::Zero(di), b = a, c = a, e = a;
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      a = take(a, hn::LoadU(d, x + i));
      b = take(b, hn::LoadU(d, x + i + lanes));
      c = take(c, hn::LoadU(d, x + i + 2 * lanes));
      e = take(e, hn::LoadU(d, x + i + 3 * lanes));
    }
    for (; i + lanes <= end; i += lanes) a = take(a, hn::LoadU(d, x + i));
    if (i < end) b = take(b, LoadTail(d, x + i, size_t(end - i), hn::Zero(d)));
    const auto largest = hn::Max(hn::Max(a, b), hn::Max(c, e));
    if (!hn::AllTrue(di, hn::Lt(largest, exponent))) return false;
  }
  return true;
}

// Puts `rows` rows onto the partial results, four at a time.
template <typename Kind>
void TakeRows(const float* HWY_RESTRICT x, int64_t stride, int64_t rows, int64_t columns,
              float* HWY_RESTRICT results) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const V start = hn::Set(d, Kind::kStart);
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float* HWY_RESTRICT r0 = x + i * stride;
    const float* HWY_RESTRICT r1 = r0 + stride;
    const float* HWY_RESTRICT r2 = r1 + stride;
    const float* HWY_RESTRICT r3 = r2 + stride;
    int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) {
      const V left = Kind::Take(Kind::Take(start, hn::LoadU(d, r0 + j)), hn::LoadU(d, r1 + j));
      const V right = Kind::Take(Kind::Take(start, hn::LoadU(d, r2 + j)), hn::LoadU(d, r3 + j));
      const V before = hn::LoadU(d, results + j);
      hn::StoreU(Kind::Join(before, Kind::Join(left, right)), d, results + j);
    }
    if (j < columns) {
      const size_t tail = size_t(columns - j);
      const V left = Kind::Take(Kind::Take(start, LoadTail(d, r0 + j, tail, start)),
                                LoadTail(d, r1 + j, tail, start));
      const V right = Kind::Take(Kind::Take(start, LoadTail(d, r2 + j, tail, start)),
                                 LoadTail(d, r3 + j, tail, start));
      const V before = LoadTail(d, results + j, tail, start);
      StoreTail(Kind::Join(before, Kind::Join(left, right)), d, results + j, tail);
    }
  }
  for (; i < rows; ++i) {
    const float* HWY_RESTRICT row = x + i * stride;
    int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) {
      hn::StoreU(Kind::Take(hn::LoadU(d, results + j), hn::LoadU(d, row + j)), d, results + j);
    }
    if (j < columns) {
      const size_t tail = size_t(columns - j);
      const V partial =
          Kind::Take(LoadTail(d, results + j, tail, start), LoadTail(d, row + j, tail, start));
      StoreTail(partial, d, results + j, tail);
    }
  }
}

// So many rows are read as one in narrow matrices: then a row is a multiple of every vector.
constexpr int64_t kRowsAsOne = 16;
constexpr int64_t kNarrow = 48;

// The partial results of columns stay in L1 while rows stream by: 2048 floats are 8 KiB.
constexpr int64_t kColumnTile = 2048;

void ColumnsLoop(ReduceOp op, const float* x, int64_t stride, int64_t rows, int64_t columns,
                 bool accumulate, float* results) {
  const float start = ReduceStart(op);
  if (!accumulate) std::fill_n(results, columns, start);
  // The results of a sum of squares are no elements to be squared again.
  const ReduceOp join = op == ReduceOp::kSumOfSquares ? ReduceOp::kSum : op;
  VisitKind(op, [&](auto kind) {
    using Kind = decltype(kind);
    int64_t done = 0;
    if (columns < kNarrow && stride == columns && rows >= 2 * kRowsAsOne) {
      HWY_ALIGN float wide[kRowsAsOne * kNarrow];
      const int64_t wide_columns = kRowsAsOne * columns;
      std::fill_n(wide, wide_columns, start);
      TakeRows<Kind>(x, wide_columns, rows / kRowsAsOne, wide_columns, wide);
      VisitKind(join, [&](auto join_kind) {
        TakeRows<decltype(join_kind)>(wide, columns, kRowsAsOne, columns, results);
      });
      done = rows / kRowsAsOne * kRowsAsOne;
    }
    for (int64_t j = 0; j < columns; j += kColumnTile) {
      TakeRows<Kind>(x + done * stride + j, stride, rows - done, std::min(kColumnTile, columns - j),
                     results + j);
    }
  });
}

template <typename Kind>
int64_t ArgExtreme(const float* HWY_RESTRICT x, int64_t length) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  float extreme = float(FoldLanes<Kind>(ReduceBlock<Kind>(x, std::min(length, kReduceBlock))));
  for (int64_t begin = kReduceBlock; begin < length; begin += kReduceBlock) {
    const V block = ReduceBlock<Kind>(x + begin, std::min(kReduceBlock, length - begin));
    extreme = float(Kind::Join(extreme, FoldLanes<Kind>(block)));
  }
  const bool nan = std::isnan(extreme);
  const V wanted = hn::Set(d, extreme);
  int64_t i = 0;
  for (; i + lanes <= length; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    const auto hits = nan ? hn::IsNaN(v) : hn::Eq(v, wanted);
    const intptr_t first = hn::FindFirstTrue(d, hits);
    if (first >= 0) return i + first;
  }
  for (; i < length; ++i) {
    if (nan ? std::isnan(x[i]) : x[i] == extreme) return i;
  }
  return 0;
}

void ArgExtremeLoop(bool largest, const float* x, int64_t stride, int64_t length, int64_t count,
                    int64_t* positions) {
  for (int64_t i = 0; i < count; ++i) {
    positions[i] = largest ? ArgExtreme<MaxKind>(x + i * stride, length)
                           : ArgExtreme<MinKind>(x + i * stride, length);
  }
}

// The exponential of what is 0 or less; NaN stays NaN.
HWY_INLINE V ExpOfNegative(D d, V x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

void LogSumExpLoop(const float* x, int64_t length, int64_t count, float* results) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const V nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t run = 0; run < count; ++run, x += length) {
    const float largest = float(RunLoop(ReduceOp::kMax, x, length));
    // Nothing but -infinity, or an infinity or NaN that is the answer.
    if (!std::isfinite(largest)) {
      results[run] = largest;
      continue;
    }
    const V shift = hn::Set(d, largest);
    double total = 0;
    for (int64_t begin = 0; begin < length; begin += kReduceBlock) {
      const int64_t end = std::min(length, begin + kReduceBlock);
      V sum = hn::Zero(d);
      int64_t i = begin;
      for (; i + lanes <= end; i += lanes) {
        sum = hn::Add(sum, ExpOfNegative(d, hn::Sub(hn::LoadU(d, x + i), shift)));
      }
      if (i < end) {
        const V tail = LoadTail(d, x + i, size_t(end - i), nothing);
        sum = hn::Add(sum, ExpOfNegative(d, hn::Sub(tail, shift)));
      }
      total += FoldLanes<SumKind>(sum);
    }
    results[run] = float(double(largest) + std::log(total));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(RunLoop);
HWY_EXPORT(RunsLoop);
HWY_EXPORT(ColumnsLoop);
HWY_EXPORT(AllFiniteLoop);
HWY_EXPORT(ArgExtremeLoop);
HWY_EXPORT(LogSumExpLoop);

float ReduceStart(ReduceOp op) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (op) {
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kMax:
      return -kInfinity;
    case ReduceOp::kMin:
      return kInfinity;
    case ReduceOp::kSum:
    case ReduceOp::kSumOfSquares:
      break;
  }
  return 0;
}

double CombineReduced(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMax:
      return b > a || std::isnan(b) ? b : a;
    case ReduceOp::kMin:
      return b < a || std::isnan(b) ? b : a;
    case ReduceOp::kSum:
    case ReduceOp::kSumOfSquares:
      break;
  }
  return a + b;
}

double ReduceRun(ReduceOp op, const float* x, int64_t length) {
  return HWY_DYNAMIC_DISPATCH(RunLoop)(op, x, length);
}
void ReduceRuns(ReduceOp op, const float* x, int64_t stride, int64_t length, int64_t count,
                float* results) {
  HWY_DYNAMIC_DISPATCH(RunsLoop)(op, x, stride, length, count, results);
}
void ReduceColumns(ReduceOp op, const float* x, int64_t stride, int64_t rows, int64_t columns,
                   bool accumulate, float* results) {
  HWY_DYNAMIC_DISPATCH(ColumnsLoop)(op, x, stride, rows, columns, accumulate, results);
}
bool AllFiniteRun(const float* x, int64_t length) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteLoop)(x, length);
}
void ArgExtremeRuns(bool largest, const float* x, int64_t stride, int64_t length, int64_t count,
                    int64_t* positions) {
  HWY_DYNAMIC_DISPATCH(ArgExtremeLoop)(largest, x, stride, length, count, positions);
}
void LogSumExpRuns(const float* x, int64_t length, int64_t count, float* results) {
  HWY_DYNAMIC_DISPATCH(LogSumExpLoop)(x, length, count, results);
}

}  // namespace tutti
#endif  // HWY_ONCE
