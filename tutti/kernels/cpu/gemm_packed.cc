// A matrix product in the manner of Goto: three loops of blocks around a kernel that keeps a tile
// of c, kRows by two vectors, in registers.
//
//   for each kColumns of n             (a block of b, packed, lies in the second cache)
//     for each kDepth of k
//       for each kHeight of m          (a block of a, packed, lies in the second cache too)
//         for each tile: one panel of a, kRows wide, times one panel of b, two vectors wide
//
// A packed panel holds, for each step of k in turn, just the numbers that the kernel reads at that
// step. So the kernel reads memory in order whatever the strides of a and b were: rows a multiple
// of 4 KB apart, which put a whole column into one set of the cache and cost oneDNN's kernel a
// third of its speed, cost nothing here beyond the packing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/gemm_packed.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first, so that what follows is compiled once a target.
#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/base/team.h"
#include "tutti/kernels/cpu/gemm_packed.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

constexpr int64_t kRows = 6;
constexpr int64_t kWidth = 2 * int64_t(hn::MaxLanes(D()));
constexpr int64_t kHeight = 96;
constexpr int64_t kDepth = 256;
constexpr int64_t kColumns = 512;

// One panel of kPanel columns of op(b)[0..depth, ...), of which `here` are there; zeros stand for
// the others.
template <int64_t kPanel>
HWY_INLINE void PackPanel(const GemmOperand& b, int64_t depth, int64_t here,
                          float* HWY_RESTRICT to) {
  const float* HWY_RESTRICT from = b.data;
  if (here < kPanel) {
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t i = 0; i < kPanel; ++i) {
        to[p * kPanel + i] = i < here ? from[p * b.row_stride + i * b.column_stride] : 0.0f;
      }
    }
  } else {
    // Along the rows of memory, eight steps at a time: each line of the cache is used up at once.
    constexpr int64_t kSteps = 8;
    int64_t p = 0;
    for (; p + kSteps <= depth; p += kSteps) {
      for (int64_t i = 0; i < kPanel; ++i) {
        const float* HWY_RESTRICT row = from + i * b.column_stride + p;
        for (int64_t q = 0; q < kSteps; ++q) to[(p + q) * kPanel + i] = row[q];
      }
    }
    for (; p < depth; ++p) {
      for (int64_t i = 0; i < kPanel; ++i) to[p * kPanel + i] = from[i * b.column_stride + p];
    }
  }
}

// From one panel of a block to the next. A line more than the panel itself, so that the same step
// of all panels does not fall into one set of the cache while they are filled side by side.
template <int64_t kPanel>
constexpr int64_t PanelStride(int64_t depth) {
  return depth * kPanel + 16;
}

// All panels of op(b)[0..depth, 0..columns).
template <int64_t kPanel>
HWY_INLINE void PackColumns(const GemmOperand& b, int64_t depth, int64_t columns,
                            float* HWY_RESTRICT to) {
  const int64_t stride = PanelStride<kPanel>(depth);
  int64_t j = 0;
  if (b.column_stride == 1) {
    // Row by row as they lie in memory, each spread over all whole panels. The hardware does not
    // foresee rows in other pages: fetching a row ahead gains 4% for [128, 1024] x [1024, 1024].
    const int64_t whole = columns / kPanel * kPanel;
    for (int64_t p = 0; p < depth; ++p) {
      const float* HWY_RESTRICT row = b.data + p * b.row_stride;
      float* HWY_RESTRICT step = to + p * kPanel;
      const float* HWY_RESTRICT ahead = row + b.row_stride;
      for (j = 0; j < whole; j += kPanel, step += stride) {
        hwy::Prefetch(ahead + j);
        for (int64_t i = 0; i < kPanel; ++i) step[i] = row[j + i];
      }
    }
    to += whole / kPanel * stride;
    j = whole;
  }
  for (; j < columns; j += kPanel, to += stride) {
    const GemmOperand panel{b.data + j * b.column_stride, b.row_stride, b.column_stride};
    PackPanel<kPanel>(panel, depth, std::min(kPanel, columns - j), to);
  }
}

HWY_INLINE void Tile(D d, int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT c, int64_t c_stride, int64_t rows, int64_t columns,
                     bool add) {
  constexpr size_t lanes = hn::MaxLanes(D());  // of fixed size on every target built here
  auto c00 = hn::Zero(d), c01 = hn::Zero(d), c10 = hn::Zero(d), c11 = hn::Zero(d);
  auto c20 = hn::Zero(d), c21 = hn::Zero(d), c30 = hn::Zero(d), c31 = hn::Zero(d);
  auto c40 = hn::Zero(d), c41 = hn::Zero(d), c50 = hn::Zero(d), c51 = hn::Zero(d);
  for (int64_t p = 0; p < depth; ++p) {
    const auto b0 = hn::Load(d, b);
    const auto b1 = hn::Load(d, b + lanes);
    auto x = hn::Set(d, a[0]);
    c00 = hn::MulAdd(x, b0, c00);
    c01 = hn::MulAdd(x, b1, c01);
    x = hn::Set(d, a[1]);
    c10 = hn::MulAdd(x, b0, c10);
    c11 = hn::MulAdd(x, b1, c11);
    x = hn::Set(d, a[2]);
    c20 = hn::MulAdd(x, b0, c20);
    c21 = hn::MulAdd(x, b1, c21);
    x = hn::Set(d, a[3]);
    c30 = hn::MulAdd(x, b0, c30);
    c31 = hn::MulAdd(x, b1, c31);
    x = hn::Set(d, a[4]);
    c40 = hn::MulAdd(x, b0, c40);
    c41 = hn::MulAdd(x, b1, c41);
    x = hn::Set(d, a[5]);
    c50 = hn::MulAdd(x, b0, c50);
    c51 = hn::MulAdd(x, b1, c51);
    a += kRows;
    b += 2 * lanes;
  }
  if (rows == kRows && columns == int64_t(2 * lanes)) {
    const auto store = [&](float* to, auto low, auto high) HWY_ATTR {
      if (add) {
        low = hn::Add(low, hn::LoadU(d, to));
        high = hn::Add(high, hn::LoadU(d, to + lanes));
      }
      hn::StoreU(low, d, to);
      hn::StoreU(high, d, to + lanes);
    };
    store(c, c00, c01);
    store(c + c_stride, c10, c11);
    store(c + 2 * c_stride, c20, c21);
    store(c + 3 * c_stride, c30, c31);
    store(c + 4 * c_stride, c40, c41);
    store(c + 5 * c_stride, c50, c51);
    return;
  }
  HWY_ALIGN float tile[kRows * 2 * hn::MaxLanes(D())];
  const auto keep = [&](int64_t row, auto low, auto high) HWY_ATTR {
    hn::Store(low, d, tile + row * int64_t(2 * lanes));
    hn::Store(high, d, tile + row * int64_t(2 * lanes) + lanes);
  };
  keep(0, c00, c01);
  keep(1, c10, c11);
  keep(2, c20, c21);
  keep(3, c30, c31);
  keep(4, c40, c41);
  keep(5, c50, c51);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float& to = c[i * c_stride + j];
      to = tile[i * int64_t(2 * lanes) + j] + (add ? to : 0.0f);
    }
  }
}

struct Buffers {
  hwy::AlignedFreeUniquePtr<float[]> a =
      hwy::AllocateAligned<float>(size_t(kHeight / kRows * PanelStride<kRows>(kDepth)));
  hwy::AlignedFreeUniquePtr<float[]> b = hwy::AllocateAligned<float>(
      size_t(DivideRoundUp(kColumns, kWidth) * PanelStride<kWidth>(kDepth)));
};

void GemmBlock(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
               float* c, int64_t c_stride, float alpha, bool accumulate) {
  thread_local const Buffers buffers;  // once a thread, not once a call
  const D d;
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t columns = std::min(kColumns, n - j);
    for (int64_t p = 0; p < k; p += kDepth) {
      const int64_t depth = std::min(kDepth, k - p);
      const GemmOperand b_here{b.data + p * b.row_stride + j * b.column_stride, b.row_stride,
                               b.column_stride};
      PackColumns<kWidth>(b_here, depth, columns, buffers.b.get());
      for (int64_t i = 0; i < m; i += kHeight) {
        const int64_t height = std::min(kHeight, m - i);
        // Rows of a are the columns of its transpose.
        const GemmOperand a_here{a.data + i * a.row_stride + p * a.column_stride, a.column_stride,
                                 a.row_stride};
        PackColumns<kRows>(a_here, depth, height, buffers.a.get());
        if (alpha != 1.0f) {
          // Here it costs little; in the kernel it would cost a register that the tile needs.
          for (int64_t ii = 0; ii < height; ii += kRows) {
            float* HWY_RESTRICT panel = buffers.a.get() + ii / kRows * PanelStride<kRows>(depth);
            for (int64_t e = 0; e < depth * kRows; ++e) panel[e] *= alpha;
          }
        }
        for (int64_t jj = 0; jj < columns; jj += kWidth) {
          for (int64_t ii = 0; ii < height; ii += kRows) {
            Tile(d, depth, buffers.a.get() + ii / kRows * PanelStride<kRows>(depth),
                 buffers.b.get() + jj / kWidth * PanelStride<kWidth>(depth),
                 c + (i + ii) * c_stride + j + jj, c_stride, std::min(kRows, height - ii),
                 std::min(kWidth, columns - jj), accumulate || p > 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(GemmBlock);

void PackedGemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                float* c, int64_t c_stride, int cores, float alpha, bool accumulate) {
  const auto block = HWY_DYNAMIC_DISPATCH(GemmBlock);
  // Each core takes a stretch of the longer side; every element of c is summed by one core, in the
  // same order whoever it is. A unit is whole tiles on every target; with few to a stretch, the
  // packing of the other operand would not pay.
  const bool by_rows = m > n;
  const int64_t unit = by_rows ? 6 : 32;
  const int64_t units = DivideRoundUp(by_rows ? m : n, unit);
  Team(cores).ParallelFor(units, 96 / unit, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * unit;
    const int64_t to = std::min(end * unit, by_rows ? m : n);
    if (by_rows) {
      const GemmOperand part{a.data + from * a.row_stride, a.row_stride, a.column_stride};
      block(to - from, n, k, part, b, c + from * c_stride, c_stride, alpha, accumulate);
    } else {
      const GemmOperand part{b.data + from * b.column_stride, b.row_stride, b.column_stride};
      block(m, to - from, k, a, part, c + from, c_stride, alpha, accumulate);
    }
  });
}

}  // namespace tutti
#endif
