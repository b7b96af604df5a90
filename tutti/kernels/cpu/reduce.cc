// Reductions of float32. A kernel sorts its dimensions (ReduceDims) and takes one of two ways:
//   - the innermost dimension goes: every result is made from contiguous runs;
//   - the innermost dimension stays: rows are reduced onto a row of results.
// Work that gives only few results is cut into blocks of fixed size, whose partial results are
// combined in order; so a result never depends on the number of cores.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/kernels/cpu/reduce_loops.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/stand_in.h"
#include "tutti/kernels/shape/reduce_dims.h"

namespace tutti {
namespace {

// A core takes at least so many elements: half of this is reduced in the time that it takes to wake
// another one (about 5 us at 20 GB/s).
constexpr int64_t kElementsPerCore = 32768;

// With at least so many independent results, they alone keep all cores busy.
constexpr int64_t kManyResults = 16;

// The shape of the work, from the dimensions.
struct Work {
  explicit Work(const ReduceDims& d) : dims(d) {
    const bool inner_stays = d.rank > 0 && !d.dims[d.rank - 1].reduced;
    if (inner_stays) {
      columns = d.dims[d.rank - 1].size;
      if (d.rank > 1) rows = d.dims[d.rank - 2].size;
      groups = columns > 0 ? d.outputs / columns : 0;
      repeats = rows > 0 ? d.elements / rows : 0;
      row_block = std::max<int64_t>(64, DivideRoundUp(rows, 64));
      blocks = groups < kManyResults && repeats == 1 && rows * columns >= 2 * kElementsPerCore
                   ? DivideRoundUp(rows, row_block)
                   : 1;
    } else {
      length = d.rank > 0 ? d.dims[d.rank - 1].size : 1;
      groups = d.outputs;
      repeats = length > 0 ? d.elements / length : 0;
      blocks = groups < kManyResults && repeats == 1 ? DivideRoundUp(length, kReduceBlock) : 1;
    }
  }

  // Partial results: one double (runs) or a row of floats (columns) for each block.
  size_t scratch_bytes() const {
    if (blocks <= 1) return 0;
    return size_t(groups * blocks) *
           (columns > 0 ? size_t(columns) * sizeof(float) : sizeof(double));
  }

  ReduceDims dims;
  int64_t groups = 1;     // independent pieces of work: results, or rows of results
  int64_t repeats = 1;    // runs, or stacks of rows, that are reduced into one
  int64_t length = 0;     // of a run
  int64_t columns = 0;    // in a row; 0 when the work is made of runs
  int64_t rows = 1;       // in a stack
  int64_t row_block = 0;  // rows that are reduced into one partial result
  int64_t blocks = 1;
};

class ReduceKernel : public Kernel {
 public:
  // `mean`: the sum is divided by the number of elements.
  explicit ReduceKernel(ReduceOp op, bool mean = false) : op_(op), mean_(mean) {}

  absl::Status Prepare(PrepareContext& context) override {
    const Shape& x = context.input(0).shape;
    const Shape& y = context.output(0).shape;
    if (!x.IsFullyKnown() || !y.IsFullyKnown()) return absl::OkStatus();
    context.SetScratchBytes(Work(DimsOf(context.node(), x, y)).scratch_bytes());
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    Work work(DimsOf(*c.node, c.input(0).shape(), c.output(0).shape()));
    Reduce(c, work);
    return absl::OkStatus();
  }

 protected:
  virtual ReduceDims DimsOf(const Node& node, const Shape& x, const Shape&) const {
    return ReduceDims::OfAxes(x, node.attr<std::vector<int64_t>>("axes"));
  }

  void Reduce(KernelContext& c, Work& work) const {
    const float* x = c.input(0).data<float>();
    float* y = c.output(0).data<float>();
    if (work.dims.outputs == 0) return;
    const double scale = mean_ ? 1.0 / double(work.dims.elements) : 1.0;
    if (work.dims.elements == 0) {
      std::fill_n(y, work.dims.outputs, mean_ ? float(0 * scale) : ReduceStart(op_));
      return;
    }
    if (c.scratch().size() < work.scratch_bytes()) work.blocks = 1;
    if (work.columns > 0) {
      work.blocks > 1 ? ColumnBlocks(c, work, x, y) : Columns(c, work, x, y);
    } else {
      work.blocks > 1 ? RunBlocks(c, work, scale, x, y) : Runs(c, work, x, y);
      if (work.blocks > 1) return;
    }
    if (mean_) {
      for (int64_t i = 0; i < work.dims.outputs; ++i) y[i] = float(y[i] * scale);
    }
  }

 private:
  void Runs(KernelContext& c, const Work& work, const float* x, float* y) const {
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / work.dims.elements);
    c.team().ParallelFor(work.groups, grain, [&](int64_t begin, int64_t end) {
      if (work.repeats == 1) {
        ReduceRuns(op_, x + begin * work.length, work.length, work.length, end - begin, y + begin);
        return;
      }
      DimsCounter kept(work.dims, false);
      kept.Seek(begin);
      DimsCounter reduced(work.dims, true);
      for (int64_t o = begin; o < end; ++o, kept.Next()) {
        double result = ReduceStart(op_);
        for (int64_t r = 0; r < work.repeats; ++r) {
          reduced.Seek(r * work.length);
          result = CombineReduced(
              op_, result, ReduceRun(op_, x + kept.offset() + reduced.offset(), work.length));
        }
        y[o] = float(result);
      }
    });
  }

  void RunBlocks(KernelContext& c, const Work& work, double scale, const float* x, float* y) const {
    auto* partial = reinterpret_cast<double*>(c.scratch().data());
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / kReduceBlock);
    c.team().ParallelFor(work.groups * work.blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i % work.blocks * kReduceBlock;
        partial[i] = ReduceRun(op_, x + i / work.blocks * work.length + at,
                               std::min(kReduceBlock, work.length - at));
      }
    });
    for (int64_t o = 0; o < work.groups; ++o) {
      double result = ReduceStart(op_);
      for (int64_t b = 0; b < work.blocks; ++b) {
        result = CombineReduced(op_, result, partial[o * work.blocks + b]);
      }
      y[o] = float(result * scale);
    }
  }

  // The stacks of rows of group g, in its columns [from, to).
  void ReduceStacks(const Work& work, const float* x, int64_t g, int64_t from, int64_t to,
                    float* y) const {
    DimsCounter kept(work.dims, false);
    kept.Seek(g * work.columns);
    DimsCounter reduced(work.dims, true);
    for (int64_t r = 0; r < work.repeats; ++r) {
      reduced.Seek(r * work.rows);
      ReduceColumns(op_, x + kept.offset() + reduced.offset() + from, work.columns, work.rows,
                    to - from, r > 0, y + g * work.columns + from);
    }
  }

  void Columns(KernelContext& c, const Work& work, const float* x, float* y) const {
    // Wide rows are cut: every part has whole cache lines and is never narrow.
    constexpr int64_t kPart = 1024;
    const int64_t parts = std::max<int64_t>(1, work.columns / kPart);
    const int64_t part = RoundUp(DivideRoundUp(work.columns, parts), 16);
    const int64_t per_part = work.dims.elements * part;
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / per_part);
    c.team().ParallelFor(work.groups * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = std::min(work.columns, i % parts * part);
        const int64_t to = std::min(work.columns, from + part);
        if (from < to) ReduceStacks(work, x, i / parts, from, to, y);
      }
    });
  }

  void ColumnBlocks(KernelContext& c, const Work& work, const float* x, float* y) const {
    auto* partial = reinterpret_cast<float*>(c.scratch().data());
    c.team().ParallelFor(work.groups * work.blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % work.blocks * work.row_block;
        ReduceColumns(op_, x + (i / work.blocks * work.rows + row) * work.columns, work.columns,
                      std::min(work.row_block, work.rows - row), work.columns, false,
                      partial + i * work.columns);
      }
    });
    const ReduceOp join = op_ == ReduceOp::kSumOfSquares ? ReduceOp::kSum : op_;
    for (int64_t g = 0; g < work.groups; ++g) {
      ReduceColumns(join, partial + g * work.blocks * work.columns, work.columns, work.blocks,
                    work.columns, false, y + g * work.columns);
    }
  }

  const ReduceOp op_;
  const bool mean_;
};

template <ReduceOp kOp, bool kMean = false>
class ReduceKernelOf : public ReduceKernel {
 public:
  ReduceKernelOf() : ReduceKernel(kOp, kMean) {}
};

// sum(x * x) / 2 over everything.
class L2LossKernel : public ReduceKernel {
 public:
  L2LossKernel() : ReduceKernel(ReduceOp::kSumOfSquares) {}

  absl::Status Compute(KernelContext& c) override {
    Work work(DimsOf(*c.node, c.input(0).shape(), Shape{}));
    Reduce(c, work);
    *c.output(0).data<float>() *= 0.5f;
    return absl::OkStatus();
  }

 private:
  ReduceDims DimsOf(const Node&, const Shape& x, const Shape&) const override {
    return ReduceDims::OfAxes(x, {});
  }
};

// The sum over all dimensions that the wanted shape does not have. Where that shape is known only
// at run time the reference kernel checks it.
class SumToShapeKernel : public ReduceKernel {
 public:
  SumToShapeKernel() : ReduceKernel(ReduceOp::kSum) {}

  absl::Status Prepare(PrepareContext& context) override {
    static_shape_ = context.input(0).shape.IsFullyKnown() && context.output(0).shape.IsFullyKnown();
    if (static_shape_) return ReduceKernel::Prepare(context);
    return reference_.Prepare(context);
  }
  absl::Status Compute(KernelContext& c) override {
    return static_shape_ ? ReduceKernel::Compute(c) : reference_.Compute(c);
  }

 private:
  ReduceDims DimsOf(const Node&, const Shape& x, const Shape& y) const override {
    return ReduceDims::OfTarget(x, y);
  }

  StandIn reference_;
  bool static_shape_ = false;
};

// Is the last axis, and only that, reduced?
bool LastAxisGoes(const ReduceDims& dims) {
  return dims.rank == 0 || (dims.rank <= 2 && dims.dims[dims.rank - 1].reduced);
}

class ArgExtremeKernel : public Kernel {
 public:
  explicit ArgExtremeKernel(bool largest) : largest_(largest) {}

  absl::Status Prepare(PrepareContext& context) override { return reference_.Prepare(context); }

  absl::Status Compute(KernelContext& c) override {
    const int64_t axis = c.node->attr<int64_t>("axis");
    const ReduceDims dims = ReduceDims::OfAxes(c.input(0).shape(), std::span(&axis, 1));
    if (!LastAxisGoes(dims) || dims.elements == 0) return reference_.Compute(c);
    const float* x = c.input(0).data<float>();
    const int64_t length = dims.elements;
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / length);
    c.team().ParallelFor(dims.outputs, grain, [&](int64_t begin, int64_t end) {
      if (c.output(0).dtype() == kInt64) {
        ArgExtremeRuns(largest_, x + begin * length, length, length, end - begin,
                       c.output(0).data<int64_t>() + begin);
        return;
      }
      constexpr int64_t kPart = 64;
      int64_t positions[kPart];
      for (int64_t i = begin; i < end; i += kPart) {
        const int64_t count = std::min(kPart, end - i);
        ArgExtremeRuns(largest_, x + i * length, length, length, count, positions);
        std::copy_n(positions, count, c.output(0).data<int32_t>() + i);
      }
    });
    return absl::OkStatus();
  }

 private:
  const bool largest_;
  StandIn reference_;
};

class LogSumExpKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override { return reference_.Prepare(context); }

  absl::Status Compute(KernelContext& c) override {
    const ReduceDims dims =
        ReduceDims::OfAxes(c.input(0).shape(), c.node->attr<std::vector<int64_t>>("axes"));
    if (!LastAxisGoes(dims)) return reference_.Compute(c);
    const float* x = c.input(0).data<float>();
    float* y = c.output(0).data<float>();
    const int64_t length = dims.elements;
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / 4 / std::max<int64_t>(1, length));
    c.team().ParallelFor(dims.outputs, grain, [&](int64_t begin, int64_t end) {
      LogSumExpRuns(x + begin * length, length, end - begin, y + begin);
    });
    return absl::OkStatus();
  }

 private:
  StandIn reference_;
};

// All, or Any, of bools: a search for the one value that decides.
class QuantifierKernel : public Kernel {
 public:
  explicit QuantifierKernel(bool all) : all_(all) {}

  absl::Status Prepare(PrepareContext& context) override { return reference_.Prepare(context); }

  absl::Status Compute(KernelContext& c) override {
    const ReduceDims dims =
        ReduceDims::OfAxes(c.input(0).shape(), c.node->attr<std::vector<int64_t>>("axes"));
    if (!LastAxisGoes(dims) || dims.elements == 0) return reference_.Compute(c);
    const bool* x = c.input(0).data<bool>();
    bool* y = c.output(0).data<bool>();
    const int64_t length = dims.elements;
    const int64_t grain = std::max<int64_t>(1, kElementsPerCore / length);
    c.team().ParallelFor(dims.outputs, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const bool decided = std::memchr(x + i * length, all_ ? 0 : 1, size_t(length)) != nullptr;
        y[i] = decided != all_;
      }
    });
    return absl::OkStatus();
  }

 private:
  const bool all_;
  StandIn reference_;
};

// Every part of x is read up to its first block with an element that is not finite.
absl::Status AllFinite(KernelContext& c) {
  const float* x = c.input(0).data<float>();
  std::atomic<bool> finite = true;
  c.team().ParallelFor(c.input(0).elements(), kElementsPerCore, [&](int64_t begin, int64_t end) {
    if (!AllFiniteRun(x + begin, end - begin)) finite.store(false, std::memory_order_relaxed);
  });
  *c.output(0).data<bool>() = finite;
  return absl::OkStatus();
}

}  // namespace

void RegisterReduceCpuKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat32};
  AddKernel<ReduceKernelOf<ReduceOp::kSum>>(registry, "Sum", "cpu", dtypes);
  AddKernel<ReduceKernelOf<ReduceOp::kSum, true>>(registry, "Mean", "cpu", dtypes);
  AddKernel<ReduceKernelOf<ReduceOp::kProd>>(registry, "Prod", "cpu", dtypes);
  AddKernel<ReduceKernelOf<ReduceOp::kMax>>(registry, "Max", "cpu", dtypes);
  AddKernel<ReduceKernelOf<ReduceOp::kMin>>(registry, "Min", "cpu", dtypes);
  AddKernel<SumToShapeKernel>(registry, "SumToShape", "cpu", dtypes);
  AddKernel<L2LossKernel>(registry, "L2Loss", "cpu", dtypes);
  AddFunctionKernel(registry, "AllFinite", "cpu", AllFinite, dtypes);
  AddKernel<LogSumExpKernel>(registry, "LogSumExp", "cpu", dtypes);
  for (const bool largest : {true, false}) {
    registry.Add(
        {.op = largest ? "ArgMax" : "ArgMin", .kind = "cpu", .dtypes = dtypes, .make = [largest] {
           return std::make_unique<ArgExtremeKernel>(largest);
         }});
  }
  for (const bool all : {true, false}) {
    registry.Add({.op = all ? "All" : "Any", .kind = "cpu", .dtypes = {kBool}, .make = [all] {
                    return std::make_unique<QuantifierKernel>(all);
                  }});
  }
  RegisterBroadcastCpuKernels(registry);
  RegisterCumsumCpuKernels(registry);
}

}  // namespace tutti
