// Gathering copies whole slices, on all cores. Adding slices at indices that may repeat is divided
// by columns: each core goes through all indices in order and adds its part of every slice, so that
// no two cores write one element and the sums are the same for any number of cores.
#include <algorithm>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/kernels/accumulate.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/from_double.h"
#include "tutti/kernels/shape/gather_geometry.h"

namespace tutti {
namespace {

constexpr int64_t kBytesPerCore = 1 << 15;  // less than this is not worth another core
constexpr int64_t kColumnsPerCore = 16;     // a cache line of float32

void Zero(const Team& team, Tensor& tensor) {
  auto* const bytes = static_cast<std::byte*>(tensor.raw());
  team.ParallelFor(int64_t(tensor.bytes()), 1 << 18, [=](int64_t begin, int64_t end) {
    std::memset(bytes + begin, 0, size_t(end - begin));
  });
}

template <typename Index>
void GatherSlices(const Team& team, const GatherGeometry& g, const Index* indices,
                  const std::byte* from, std::byte* to, int64_t slice) {
  const int64_t grain = DivideRoundUp(kBytesPerCore, slice);
  team.ParallelFor(g.outer * g.indices, grain, [&](int64_t begin, int64_t end) {
    int64_t outer = begin / g.indices;
    int64_t i = begin % g.indices;
    std::byte* target = to + begin * slice;
    for (int64_t n = begin; n < end; ++n, target += slice) {
      std::memcpy(target, from + (outer * g.dim + int64_t(indices[i])) * slice, size_t(slice));
      if (++i == g.indices) {
        i = 0;
        ++outer;
      }
    }
  });
}

absl::Status Gather(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const GatherGeometry g, StartGather(context, kernel));
  const auto slice = g.inner * int64_t(SizeOf(context.input(0).dtype()));
  if (slice == 0 || g.outer * g.indices == 0) return absl::OkStatus();
  const auto* const from = static_cast<const std::byte*>(context.input(0).raw());
  auto* const to = static_cast<std::byte*>(context.output(0).raw());
  const Tensor& indices = context.input(1);
  if (indices.dtype() == kInt32) {
    GatherSlices(context.team(), g, indices.data<int32_t>(), from, to, slice);
  } else {
    GatherSlices(context.team(), g, indices.data<int64_t>(), from, to, slice);
  }
  return absl::OkStatus();
}

// For each i below count: adds from[i * inner ...] to to[start(i) ...].
template <typename T, typename Start>
void AddSlices(const Team& team, int64_t count, int64_t inner, const T* from, T* to,
               const Start& start) {
  if (count == 0 || inner == 0) return;
  const int64_t bytes_per_column = count * int64_t(sizeof(T));
  const int64_t grain = std::max(kColumnsPerCore, DivideRoundUp(kBytesPerCore, bytes_per_column));
  team.ParallelFor(inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      AddInto(to + start(i) + begin, from + i * inner + begin, end - begin);
    }
  });
}

absl::Status GatherGrad(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const GatherGeometry g, StartGatherGrad(context, kernel));
  Zero(context.team(), context.output(0));
  const Tensor& indices = context.input(1);
  for (int64_t o = 0; o < g.outer; ++o) {
    AddSlices(context.team(), g.indices, g.inner,
              context.input(0).data<float>() + o * g.indices * g.inner,
              context.output(0).data<float>() + o * g.dim * g.inner,
              [&](int64_t i) { return IndexAt(indices, i) * g.inner; });
  }
  return absl::OkStatus();
}

absl::Status UnsortedSegmentSum(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const SegmentGeometry g, StartSegmentSum(context, kernel));
  Zero(context.team(), context.output(0));
  const Tensor& ids = context.input(1);
  AddSlices(context.team(), g.rows, g.inner, context.input(0).data<float>(),
            context.output(0).data<float>(),
            [&](int64_t row) { return IndexAt(ids, row) * g.inner; });
  return absl::OkStatus();
}

// OK unless an index is out of range. Every SliceStart is OK then.
absl::Status CheckSlices(const NdGeometry& g, const Tensor& indices) {
  for (int64_t row = 0; row < g.count; ++row) {
    TUTTI_RETURN_IF_ERROR(SliceStart(g, indices, row).status());
  }
  return absl::OkStatus();
}

absl::Status GatherNd(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const NdGeometry g, StartGatherNd(context, kernel));
  const Tensor& indices = context.input(1);
  TUTTI_RETURN_IF_ERROR(CheckSlices(g, indices));
  const auto size = int64_t(SizeOf(context.input(0).dtype()));
  const int64_t slice = g.inner * size;
  if (slice == 0) return absl::OkStatus();
  const auto* const from = static_cast<const std::byte*>(context.input(0).raw());
  auto* const to = static_cast<std::byte*>(context.output(0).raw());
  context.team().ParallelFor(
      g.count, DivideRoundUp(kBytesPerCore, slice), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          std::memcpy(to + row * slice, from + *SliceStart(g, indices, row) * size, size_t(slice));
        }
      });
  return absl::OkStatus();
}

absl::Status ScatterNd(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const NdGeometry g, StartScatterNd(context, kernel));
  const Tensor& indices = context.input(0);
  TUTTI_RETURN_IF_ERROR(CheckSlices(g, indices));
  const auto start = [&](int64_t row) { return *SliceStart(g, indices, row); };
  return VisitDType(context.input(1).dtype(), [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::type;
    const T* const from = context.input(1).data<T>();
    if constexpr (kIsNarrow<T>) {
      return SumSlices<T>(context.device(), context.output(0), [&](const auto& add) {
        for (int64_t row = 0; row < g.count; ++row) add(start(row), from + row * g.inner, g.inner);
        return absl::OkStatus();
      });
    } else {
      Zero(context.team(), context.output(0));
      AddSlices(context.team(), g.count, g.inner, from, context.output(0).data<T>(), start);
      return absl::OkStatus();
    }
  });
}

absl::Status OneHot(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const OneHotGeometry g, StartOneHot(context, kernel));
  const int64_t block = g.depth * g.inner;
  if (block == 0) return absl::OkStatus();
  const Tensor& indices = context.input(0);
  VisitDType(context.output(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const data = context.output(0).data<T>();
    const T on = FromDouble<T>(g.on), off = FromDouble<T>(g.off);
    const int64_t grain = DivideRoundUp(kBytesPerCore, block * int64_t(sizeof(T)));
    context.team().ParallelFor(g.outer, grain, [&](int64_t begin, int64_t end) {
      std::fill(data + begin * block, data + end * block, off);
      for (int64_t i = begin * g.inner; i < end * g.inner; ++i) {
        const int64_t index = IndexAt(indices, i);
        if (index < 0 || index >= g.depth) continue;
        data[(i / g.inner * g.depth + index) * g.inner + i % g.inner] = on;
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterGatherCpuKernels(KernelRegistry& registry) {
  AddDynamicKernel(registry, "Gather", "cpu", Gather);
  AddDynamicKernel(registry, "GatherGrad", "cpu", GatherGrad, {kFloat32});
  AddDynamicKernel(registry, "GatherNd", "cpu", GatherNd);
  AddDynamicKernel(registry, "ScatterNd", "cpu", ScatterNd);
  AddDynamicKernel(registry, "OneHot", "cpu", OneHot);
  AddDynamicKernel(registry, "UnsortedSegmentSum", "cpu", UnsortedSegmentSum, {kFloat32});
}

}  // namespace tutti
