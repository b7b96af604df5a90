// BiasAdd and BiasAddGrad in float32 at the speed of memory. An image is rows of `channels`:
// row-major that is every pixel; with channels in blocks of b it is, for each block, height * width
// rows of b.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/bias.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/kernels/cpu/bias.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y = x + bias, or the positive part of that, in each of `rows` rows. NaN stays.
template <bool kRelu>
void AddBiasTo(const float* x, const float* bias, float* y, int64_t rows, int64_t channels) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i, x += channels, y += channels) {
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) {
      auto sum = hn::Add(hn::LoadU(d, x + c), hn::LoadU(d, bias + c));
      if constexpr (kRelu) sum = hn::IfThenZeroElse(hn::Le(sum, hn::Zero(d)), sum);
      hn::StoreU(sum, d, y + c);
    }
    for (; c < channels; ++c) {
      const float sum = x[c] + bias[c];
      y[c] = kRelu && sum <= 0 ? 0 : sum;
    }
  }
}

void AddBias(const float* x, const float* bias, float* y, int64_t rows, int64_t channels,
             bool relu) {
  relu ? AddBiasTo<true>(x, bias, y, rows, channels) : AddBiasTo<false>(x, bias, y, rows, channels);
}

// sums[c] += the sum over `rows` rows, which lie `stride` floats apart, four vectors of channels at
// a time with two partial sums each.
void SumRows(const float* x, float* sums, int64_t rows, int64_t channels, int64_t stride) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    auto t0 = s0, t1 = s0, t2 = s0, t3 = s0;
    const float* p = x + c;
    int64_t i = 0;
    for (; i + 2 <= rows; i += 2, p += 2 * stride) {
      s0 = hn::Add(s0, hn::LoadU(d, p));
      s1 = hn::Add(s1, hn::LoadU(d, p + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, p + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, p + 3 * lanes));
      t0 = hn::Add(t0, hn::LoadU(d, p + stride));
      t1 = hn::Add(t1, hn::LoadU(d, p + stride + lanes));
      t2 = hn::Add(t2, hn::LoadU(d, p + stride + 2 * lanes));
      t3 = hn::Add(t3, hn::LoadU(d, p + stride + 3 * lanes));
    }
    if (i < rows) {
      s0 = hn::Add(s0, hn::LoadU(d, p));
      s1 = hn::Add(s1, hn::LoadU(d, p + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, p + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, p + 3 * lanes));
    }
    const auto add = [&](auto s, auto t, int64_t at) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, sums + at), hn::Add(s, t)), d, sums + at);
    };
    add(s0, t0, c);
    add(s1, t1, c + lanes);
    add(s2, t2, c + 2 * lanes);
    add(s3, t3, c + 3 * lanes);
  }
  for (; c + lanes <= channels; c += lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const float* p = x + c;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, p += 4 * stride) {
      s0 = hn::Add(s0, hn::LoadU(d, p));
      s1 = hn::Add(s1, hn::LoadU(d, p + stride));
      s2 = hn::Add(s2, hn::LoadU(d, p + 2 * stride));
      s3 = hn::Add(s3, hn::LoadU(d, p + 3 * stride));
    }
    for (; i < rows; ++i, p += stride) s0 = hn::Add(s0, hn::LoadU(d, p));
    const auto s = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + c), s), d, sums + c);
  }
  for (; c < channels; ++c) {
    float s = 0;
    for (int64_t i = 0; i < rows; ++i) s += x[i * stride + c];
    sums[c] += s;
  }
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {

HWY_EXPORT(AddBias);
HWY_EXPORT(SumRows);

// A tensor as images of `pixels` rows: blocks * block channels each, in `blocks` runs of rows.
struct Rows {
  int64_t images = 1;
  int64_t pixels = 0;
  int64_t blocks = 1;
  int64_t block = 0;
};

Rows RowsOf(const Shape& shape, const Layout& layout) {
  const int64_t channels = shape.dim(-1);
  if (layout.row_major()) {
    return {.pixels = channels == 0 ? 0 : shape.elements() / channels, .block = channels};
  }
  const int64_t block = layout.tag() == "aDbc16d" ? 16 : 8;
  return {.images = shape.dim(0),
          .pixels = shape.dim(1) * shape.dim(2),
          .blocks = channels / block,
          .block = block};
}

class BiasAddKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    layout_ = ctx.input_layout(0);
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    const Rows rows = RowsOf(ctx.input(0).shape(), layout_);
    const float* x = ctx.input(0).data<float>();
    const float* bias = ctx.input(1).data<float>();
    float* y = ctx.output(0).data<float>();
    const auto add = [](const float* from, const float* b, float* to, int64_t count, int64_t c) {
      HWY_DYNAMIC_DISPATCH(AddBias)(from, b, to, count, c, false);
    };
    if (layout_.row_major()) {
      ctx.team().ParallelFor(rows.pixels, 1 + 32768 / std::max<int64_t>(rows.block, 1),
                             [&](int64_t begin, int64_t end) {
                               add(x + begin * rows.block, bias, y + begin * rows.block,
                                   end - begin, rows.block);
                             });
      return absl::OkStatus();
    }
    const int64_t run = rows.pixels * rows.block;
    ctx.team().ParallelFor(rows.images * rows.blocks, 1 + 32768 / std::max<int64_t>(run, 1),
                           [&](int64_t begin, int64_t end) {
                             for (int64_t i = begin; i < end; ++i) {
                               add(x + i * run, bias + i % rows.blocks * rows.block, y + i * run,
                                   rows.pixels, rows.block);
                             }
                           });
    return absl::OkStatus();
  }

 private:
  Layout layout_;
};

// Rows are summed in parts of a fixed number, whatever the cores, and the parts in order: the
// result is the same on any machine, and rounding grows with the root of the rows rather than with
// them.
class BiasAddGradKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& ctx) override {
    layout_ = ctx.input_layout(0);
    const Shape& shape = ctx.input(0).shape;
    if (!shape.IsFullyKnown()) return absl::OkStatus();
    rows_ = RowsOf(shape, layout_);
    const int64_t row_count = rows_.images * rows_.pixels;
    part_ = layout_.row_major() ? std::max<int64_t>(DivideRoundUp(row_count, kParts), 256)
                                : std::max<int64_t>(DivideRoundUp(rows_.images, kParts), 1);
    ctx.SetScratchBytes(size_t(kParts * shape.dim(-1)) * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(0);
    const int64_t channels = dy.shape().dim(-1);
    const int64_t count = layout_.row_major() ? rows_.pixels : rows_.images;
    const int64_t parts = DivideRoundUp(count, part_);
    float* sums = reinterpret_cast<float*>(ctx.scratch().data());
    std::memset(sums, 0, size_t(parts * channels) * sizeof(float));
    const int64_t work = std::max<int64_t>(part_ * (layout_.row_major() ? 1 : rows_.pixels), 1);
    ctx.team().ParallelFor(parts, 1 + 65536 / (work * std::max<int64_t>(channels, 1)),
                           [&](int64_t begin, int64_t end) {
                             for (int64_t p = begin; p < end; ++p) {
                               SumPart(dy.data<float>(), sums + p * channels, p * part_,
                                       std::min(count, (p + 1) * part_), channels);
                             }
                           });
    float* out = ctx.output(0).data<float>();
    std::memset(out, 0, size_t(channels) * sizeof(float));
    HWY_DYNAMIC_DISPATCH(SumRows)(sums, out, parts, channels, channels);
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kParts = 64;

  void SumPart(const float* dy, float* sums, int64_t begin, int64_t end, int64_t channels) const {
    const auto sum = [](const float* x, float* to, int64_t count, int64_t c, int64_t stride) {
      HWY_DYNAMIC_DISPATCH(SumRows)(x, to, count, c, stride);
    };
    if (layout_.row_major()) {
      sum(dy + begin * channels, sums, end - begin, channels, channels);
      return;
    }
    const int64_t run = rows_.pixels * rows_.block;
    for (int64_t i = begin * rows_.blocks; i < end * rows_.blocks; ++i) {
      sum(dy + i * run, sums + i % rows_.blocks * rows_.block, rows_.pixels, rows_.block,
          rows_.block);
    }
  }

  Layout layout_;
  Rows rows_;
  int64_t part_ = 1;
};

}  // namespace

void AddBiasToRows(const Team& team, const float* x, const float* bias, float* y, int64_t rows,
                   int64_t channels, bool relu) {
  team.ParallelFor(
      rows, 1 + 32768 / std::max<int64_t>(channels, 1), [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(AddBias)
        (x + begin * channels, bias, y + begin * channels, end - begin, channels, relu);
      });
}

void RegisterBiasCpuKernels(KernelRegistry& registry) {
  registry.Add({.op = "BiasAdd",
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [] { return std::make_unique<BiasAddKernel>(); },
                .in_place = {{0, 0}},
                .image_layouts = true});
  registry.Add({.op = "BiasAddGrad",
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [] { return std::make_unique<BiasAddGradKernel>(); },
                .image_layouts = true});
}

}  // namespace tutti
#endif  // HWY_ONCE
