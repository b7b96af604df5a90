// BroadcastTo by copying whole runs: the innermost dimension of the result is either a row of x,
// which is copied, or one element of x, with which a run is filled. Works on bytes, so it serves
// every dtype.
#include <algorithm>
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/stand_in.h"
#include "tutti/kernels/shape/reduce_dims.h"

namespace tutti {
namespace {

// Counts through all outer dimensions of the result and knows where in x each run comes from.
class RunCounter {
 public:
  RunCounter(const ReduceDims& dims, int64_t run) : dims_(dims) {
    int64_t stride = 1;
    for (int i = dims.rank - 1; i >= 0; --i) {
      stride_[i] = dims.dims[i].reduced ? 0 : stride;
      if (!dims.dims[i].reduced) stride *= dims.dims[i].size;
    }
    for (int i = dims.rank - 2; i >= 0; --i) {
      index_[i] = run % dims.dims[i].size;
      run /= dims.dims[i].size;
      source_ += index_[i] * stride_[i];
    }
  }

  int64_t source() const { return source_; }
  void Next() {
    for (int i = dims_.rank - 2; i >= 0; --i) {
      source_ += stride_[i];
      if (++index_[i] < dims_.dims[i].size) return;
      source_ -= stride_[i] * dims_.dims[i].size;
      index_[i] = 0;
    }
  }

 private:
  const ReduceDims& dims_;
  std::array<int64_t, kMaxRank> stride_{};
  std::array<int64_t, kMaxRank> index_{};
  int64_t source_ = 0;
};

template <typename T>
void CopyRuns(const ReduceDims& dims, const T* x, int64_t run, bool repeat, int64_t begin,
              int64_t end, T* y) {
  RunCounter counter(dims, begin);
  for (int64_t i = begin; i < end; ++i, counter.Next()) {
    if (repeat) {
      std::fill_n(y + i * run, run, x[counter.source()]);
    } else {
      std::memcpy(y + i * run, x + counter.source(), size_t(run) * sizeof(T));
    }
  }
}

// One element many times, or a copy of everything: the work is cut by elements, not by runs.
template <typename T>
void FillOrCopy(const Team& team, const T* x, int64_t count, bool repeat, T* y) {
  team.ParallelFor(count, int64_t(65536 / sizeof(T)), [&](int64_t begin, int64_t end) {
    if (repeat) {
      std::fill(y + begin, y + end, *x);
    } else {
      std::memcpy(y + begin, x + begin, size_t(end - begin) * sizeof(T));
    }
  });
}

template <typename T>
void Broadcast(const Team& team, const ReduceDims& dims, const void* x, void* y) {
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<T*>(y);
  if (dims.rank <= 1) {
    const int64_t count = dims.rank == 1 ? dims.dims[0].size : 1;
    return FillOrCopy<T>(team, from, count, dims.rank == 1 && dims.dims[0].reduced, to);
  }
  const int64_t run = dims.dims[dims.rank - 1].size;
  const bool repeat = dims.dims[dims.rank - 1].reduced;
  const int64_t runs = dims.outputs * dims.elements / run;
  const int64_t grain = std::max<int64_t>(1, int64_t(65536 / sizeof(T)) / run);
  team.ParallelFor(runs, grain, [&](int64_t begin, int64_t end) {
    CopyRuns<T>(dims, from, run, repeat, begin, end, to);
  });
}

// Where the shape is known only at run time the reference kernel checks it.
class BroadcastToKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    static_shape_ = context.input(0).shape.IsFullyKnown() && context.output(0).shape.IsFullyKnown();
    return static_shape_ ? absl::OkStatus() : reference_.Prepare(context);
  }

  absl::Status Compute(KernelContext& c) override {
    if (!static_shape_) return reference_.Compute(c);
    const Tensor& x = c.input(0);
    Tensor& y = c.output(0);
    if (y.elements() == 0) return absl::OkStatus();
    const ReduceDims dims = ReduceDims::OfTarget(y.shape(), x.shape());
    switch (SizeOf(x.dtype())) {
      case 1:
        Broadcast<uint8_t>(c.team(), dims, x.raw(), y.raw());
        break;
      case 2:
        Broadcast<uint16_t>(c.team(), dims, x.raw(), y.raw());
        break;
      case 4:
        Broadcast<uint32_t>(c.team(), dims, x.raw(), y.raw());
        break;
      default:
        Broadcast<uint64_t>(c.team(), dims, x.raw(), y.raw());
    }
    return absl::OkStatus();
  }

 private:
  StandIn reference_;
  bool static_shape_ = false;
};

}  // namespace

void RegisterBroadcastCpuKernels(KernelRegistry& registry) {
  AddKernel<BroadcastToKernel>(registry, "BroadcastTo", "cpu");
}

}  // namespace tutti
