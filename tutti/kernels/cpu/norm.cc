// Layer and batch normalisation of float32. Sums over rows are made in blocks of a fixed number of
// rows, each with partial results of its own, which are combined in order: the result does not
// depend on the number of cores. Moments of blocks are combined by the formula of Chan, Golub and
// LeVeque, so that a large mean costs no precision of the variance.
#include <algorithm>
#include <cmath>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/kernels/cpu/norm_loops.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/shape/labels.h"

namespace tutti {
namespace {

// A core takes at least so many elements.
constexpr int64_t kElementsPerCore = 16384;

// Rows in blocks. At least 32, at most 256 blocks: partial results stay small beside the input.
struct RowBlocks {
  RowBlocks(int64_t all_rows, int64_t all_columns) : rows(all_rows), columns(all_columns) {
    size = std::max<int64_t>(32, DivideRoundUp(rows, 256));
    count = DivideRoundUp(rows, size);
  }
  explicit RowBlocks(const Shape& shape) : RowBlocks(RowsAndClasses(shape).rows, shape.dim(-1)) {}

  // Calls body(block, first row, rows in it), blocks spread over the cores.
  template <typename Body>
  void ForEach(const Team& team, const Body& body) const {
    const int64_t grain =
        std::max<int64_t>(1, kElementsPerCore / std::max<int64_t>(1, size * columns));
    team.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) body(b, b * size, std::min(size, rows - b * size));
    });
  }

  // Calls body(first row, rows) over all rows, in no particular blocks.
  template <typename Body>
  void ForRows(const Team& team, const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / std::max<int64_t>(1, columns));
    team.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
  }

  int64_t rows;
  int64_t columns;
  int64_t size = 0;
  int64_t count = 0;
};

absl::Status LayerNorm(KernelContext& c) {
  const RowBlocks blocks(c.input(0).shape());
  const auto epsilon = float(c.node->attr<double>("epsilon"));
  blocks.ForRows(c.team(), [&](int64_t first, int64_t rows) {
    const int64_t at = first * blocks.columns;
    LayerNormRows(c.input(0).data<float>() + at, c.input(1).data<float>(), c.input(2).data<float>(),
                  epsilon, rows, blocks.columns, c.output(0).data<float>() + at,
                  c.output(1).data<float>() + first, c.output(2).data<float>() + first);
  });
  return absl::OkStatus();
}

// What needs `per_block` floats for each column and block, and `extra` for each column.
class ByBlocksKernel : public Kernel {
 public:
  ByBlocksKernel(int input, int per_block, int extra)
      : input_(input), per_block_(per_block), extra_(extra) {}

  absl::Status Prepare(PrepareContext& context) override {
    const Shape& x = context.input(input_).shape;
    if (!x.IsFullyKnown() || x.elements() == 0) return absl::OkStatus();
    const RowBlocks blocks(x);
    context.SetScratchBytes(size_t(blocks.count * per_block_ + extra_) * size_t(blocks.columns) *
                            sizeof(float));
    return absl::OkStatus();
  }

 private:
  const int input_;
  const int per_block_;
  const int extra_;
};

// sums[0] and sums[1], [columns] each, from [block][2][columns], in the order of blocks.
void SumBlocks(const RowBlocks& blocks, const float* partial, float* const (&sums)[2]) {
  for (int which = 0; which < 2; ++which) {
    std::fill_n(sums[which], blocks.columns, 0.0f);
    for (int64_t b = 0; b < blocks.count; ++b) {
      const float* row = partial + (2 * b + which) * blocks.columns;
      for (int64_t j = 0; j < blocks.columns; ++j) sums[which][j] += row[j];
    }
  }
}

class LayerNormGradKernel : public ByBlocksKernel {
 public:
  LayerNormGradKernel() : ByBlocksKernel(1, 2, 0) {}

  absl::Status Compute(KernelContext& c) override {
    const RowBlocks blocks(c.input(1).shape());
    auto* partial = reinterpret_cast<float*>(c.scratch().data());
    float* dscale = c.output(1).data<float>();
    float* doffset = c.output(2).data<float>();
    if (c.input(1).elements() == 0) {
      std::fill_n(dscale, blocks.columns, 0.0f);
      std::fill_n(doffset, blocks.columns, 0.0f);
      return absl::OkStatus();
    }
    blocks.ForEach(c.team(), [&](int64_t b, int64_t first, int64_t rows) {
      float* sums = partial + 2 * b * blocks.columns;
      std::fill_n(sums, 2 * blocks.columns, 0.0f);
      const int64_t at = first * blocks.columns;
      LayerNormGradRows(c.input(0).data<float>() + at, c.input(1).data<float>() + at,
                        c.input(2).data<float>(), c.input(3).data<float>() + first,
                        c.input(4).data<float>() + first, rows, blocks.columns,
                        c.output(0).data<float>() + at, sums, sums + blocks.columns);
    });
    SumBlocks(blocks, partial, {dscale, doffset});
    return absl::OkStatus();
  }
};

// y = (x - mean) * rstd * scale + offset as one multiply-add with a factor and a shift by column.
void FactorAndShift(int64_t columns, const float* scale, const float* offset, const float* mean,
                    const float* rstd, float* factor, float* shift) {
  for (int64_t j = 0; j < columns; ++j) {
    factor[j] = scale[j] * rstd[j];
    shift[j] = offset[j] - mean[j] * factor[j];
  }
}

class BatchNormKernel : public ByBlocksKernel {
 public:
  BatchNormKernel() : ByBlocksKernel(0, 2, 2) {}

  absl::Status Compute(KernelContext& c) override {
    const RowBlocks blocks(c.input(0).shape());
    const int64_t columns = blocks.columns;
    const float* x = c.input(0).data<float>();
    float* mean = c.output(1).data<float>();
    float* variance = c.output(2).data<float>();
    float* rstd = c.output(3).data<float>();
    auto* partial = reinterpret_cast<float*>(c.scratch().data());
    if (c.input(0).elements() > 0) {
      blocks.ForEach(c.team(), [&](int64_t b, int64_t first, int64_t rows) {
        float* moments = partial + 2 * b * columns;
        ColumnMoments(x + first * columns, rows, columns, moments, moments + columns);
      });
    }
    Combine(blocks, partial, mean, variance);
    const double epsilon = c.node->attr<double>("epsilon");
    for (int64_t j = 0; j < columns; ++j) rstd[j] = float(1 / std::sqrt(variance[j] + epsilon));
    if (c.input(0).elements() == 0) return absl::OkStatus();
    float* factor = partial + 2 * blocks.count * columns;
    float* shift = factor + columns;
    FactorAndShift(columns, c.input(1).data<float>(), c.input(2).data<float>(), mean, rstd, factor,
                   shift);
    blocks.ForRows(c.team(), [&](int64_t first, int64_t rows) {
      const int64_t at = first * columns;
      ScaleColumns(x + at, factor, shift, rows, columns, c.output(0).data<float>() + at);
    });
    return absl::OkStatus();
  }

 private:
  // Mean and variance of all rows from the moments of each block.
  static void Combine(const RowBlocks& blocks, const float* partial, float* mean, float* variance) {
    for (int64_t j = 0; j < blocks.columns; ++j) {
      double rows = 0;
      double joint_mean = 0;
      double squares = 0;
      for (int64_t b = 0; b < blocks.count; ++b) {
        const float* moments = partial + 2 * b * blocks.columns;
        const auto here = double(std::min(blocks.size, blocks.rows - b * blocks.size));
        const double difference = double(moments[j]) - joint_mean;
        const double together = rows + here;
        joint_mean += difference * here / together;
        squares +=
            double(moments[blocks.columns + j]) + difference * difference * rows * here / together;
        rows = together;
      }
      mean[j] = float(joint_mean);
      variance[j] = rows > 0 ? float(squares / rows) : 0;
    }
  }
};

class BatchNormGradKernel : public ByBlocksKernel {
 public:
  BatchNormGradKernel() : ByBlocksKernel(1, 2, 3) {}

  absl::Status Compute(KernelContext& c) override {
    const RowBlocks blocks(c.input(1).shape());
    const int64_t columns = blocks.columns;
    const float* dy = c.input(0).data<float>();
    const float* x = c.input(1).data<float>();
    const float* scale = c.input(2).data<float>();
    const float* mean = c.input(3).data<float>();
    const float* rstd = c.input(4).data<float>();
    float* dscale = c.output(1).data<float>();
    float* doffset = c.output(2).data<float>();
    if (c.input(1).elements() == 0) {
      std::fill_n(dscale, columns, 0.0f);
      std::fill_n(doffset, columns, 0.0f);
      return absl::OkStatus();
    }
    auto* partial = reinterpret_cast<float*>(c.scratch().data());
    blocks.ForEach(c.team(), [&](int64_t b, int64_t first, int64_t rows) {
      const int64_t at = first * columns;
      float* sums = partial + 2 * b * columns;
      ColumnGradientSums(dy + at, x + at, mean, rows, columns, sums, sums + columns);
    });
    SumBlocks(blocks, partial, {doffset, dscale});
    // dx = scale * rstd * (dy - mean(dy) - n * mean(dy * n)) with n = (x - mean) * rstd, as
    // a * dy + b * x + c.
    float* a = partial + 2 * blocks.count * columns;
    float* b = a + columns;
    float* shift = b + columns;
    for (int64_t j = 0; j < columns; ++j) {
      dscale[j] *= rstd[j];
      a[j] = scale[j] * rstd[j];
      b[j] = -a[j] * rstd[j] * (dscale[j] / float(blocks.rows));
      shift[j] = -a[j] * (doffset[j] / float(blocks.rows)) - b[j] * mean[j];
    }
    blocks.ForRows(c.team(), [&](int64_t first, int64_t rows) {
      const int64_t at = first * columns;
      CombineColumns(dy + at, x + at, a, b, shift, rows, columns, c.output(0).data<float>() + at);
    });
    return absl::OkStatus();
  }
};

class BatchNormInferenceKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Shape& x = context.input(0).shape;
    if (x.IsFullyKnown()) context.SetScratchBytes(size_t(x.dim(-1)) * 2 * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (c.input(0).elements() == 0) return absl::OkStatus();
    const RowBlocks blocks(c.input(0).shape());
    const int64_t columns = blocks.columns;
    const double epsilon = c.node->attr<double>("epsilon");
    auto* factor = reinterpret_cast<float*>(c.scratch().data());
    float* shift = factor + columns;
    // The place of the factors holds rstd until they are made from it, one by one.
    for (int64_t j = 0; j < columns; ++j) {
      factor[j] = float(1 / std::sqrt(double(c.input(4).data<float>()[j]) + epsilon));
    }
    FactorAndShift(columns, c.input(1).data<float>(), c.input(2).data<float>(),
                   c.input(3).data<float>(), factor, factor, shift);
    blocks.ForRows(c.team(), [&](int64_t first, int64_t rows) {
      const int64_t at = first * columns;
      ScaleColumns(c.input(0).data<float>() + at, factor, shift, rows, columns,
                   c.output(0).data<float>() + at);
    });
    return absl::OkStatus();
  }
};

}  // namespace

void RegisterNormCpuKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat32};
  AddFunctionKernel(registry, "LayerNorm", "cpu", LayerNorm, dtypes, {{0, 0}});
  AddKernel<LayerNormGradKernel>(registry, "LayerNormGrad", "cpu", dtypes, {{0, 0}, {1, 0}});
  AddKernel<BatchNormKernel>(registry, "BatchNorm", "cpu", dtypes, {{0, 0}});
  AddKernel<BatchNormGradKernel>(registry, "BatchNormGrad", "cpu", dtypes, {{0, 0}, {1, 0}});
  AddKernel<BatchNormInferenceKernel>(registry, "BatchNormInference", "cpu", dtypes, {{0, 0}});
}

}  // namespace tutti
