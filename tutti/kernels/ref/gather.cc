#include <cstring>

#include "tutti/device/device.h"
#include "tutti/kernels/accumulate.h"
#include "tutti/kernels/from_double.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/gather_geometry.h"

namespace tutti {
namespace {

const std::byte* Bytes(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }
std::byte* Bytes(Tensor& tensor) { return static_cast<std::byte*>(tensor.raw()); }

absl::Status Gather(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const GatherGeometry g, StartGather(context, kernel));
  const size_t slice = size_t(g.inner) * SizeOf(context.input(0).dtype());
  if (slice == 0) return absl::OkStatus();
  std::byte* to = Bytes(context.output(0));
  for (int64_t o = 0; o < g.outer; ++o) {
    const std::byte* from = Bytes(context.input(0)) + size_t(o * g.dim) * slice;
    for (int64_t i = 0; i < g.indices; ++i, to += slice) {
      std::memcpy(to, from + size_t(IndexAt(context.input(1), i)) * slice, slice);
    }
  }
  return absl::OkStatus();
}

absl::Status GatherGrad(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const GatherGeometry g, StartGatherGrad(context, kernel));
  return VisitDType(context.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return SumSlices<T>(context.device(), context.output(0), [&](const auto& add) {
      const T* from = context.input(0).data<T>();
      for (int64_t o = 0; o < g.outer; ++o) {
        for (int64_t i = 0; i < g.indices; ++i, from += g.inner) {
          add((o * g.dim + IndexAt(context.input(1), i)) * g.inner, from, g.inner);
        }
      }
      return absl::OkStatus();
    });
  });
}

absl::Status GatherNd(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const NdGeometry g, StartGatherNd(context, kernel));
  const size_t size = SizeOf(context.input(0).dtype());
  const size_t slice = size_t(g.inner) * size;
  for (int64_t row = 0; row < g.count; ++row) {
    TUTTI_ASSIGN_OR_RETURN(const int64_t start, SliceStart(g, context.input(1), row));
    if (slice == 0) continue;
    std::memcpy(Bytes(context.output(0)) + size_t(row) * slice,
                Bytes(context.input(0)) + size_t(start) * size, slice);
  }
  return absl::OkStatus();
}

absl::Status ScatterNd(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const NdGeometry g, StartScatterNd(context, kernel));
  return VisitDType(context.input(1).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return SumSlices<T>(context.device(), context.output(0), [&](const auto& add) -> absl::Status {
      for (int64_t row = 0; row < g.count; ++row) {
        TUTTI_ASSIGN_OR_RETURN(const int64_t start, SliceStart(g, context.input(0), row));
        add(start, context.input(1).data<T>() + row * g.inner, g.inner);
      }
      return absl::OkStatus();
    });
  });
}

absl::Status CheckLast(const Shape& x, const Shape& indices) {
  if (x.rank() > 0 && x.rank() == indices.rank() && x.WithDim(-1, 0) == indices.WithDim(-1, 0)) {
    return absl::OkStatus();
  }
  return InvalidArgument("x is {}, indices is {}; expected the same dimensions before the last",
                         x.ToString(), indices.ToString());
}

absl::Status GatherLast(KernelContext& context, const DynamicKernel& kernel) {
  const Tensor& x = context.input(0);
  const Tensor& indices = context.input(1);
  TUTTI_RETURN_IF_ERROR(CheckLast(x.shape(), indices.shape()));
  TUTTI_RETURN_IF_ERROR(CheckIndices(indices, x.shape().dim(-1), "indices"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, indices.shape()));
  const int64_t width = x.shape().dim(-1);
  const int64_t count = indices.shape().dim(-1);
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < indices.elements(); ++i) {
      context.output(0).data<T>()[i] = x.data<T>()[i / count * width + IndexAt(indices, i)];
    }
  });
  return absl::OkStatus();
}

absl::Status GatherLastGrad(KernelContext& context, const DynamicKernel& kernel) {
  const Tensor& gradient = context.input(0);
  const Tensor& indices = context.input(1);
  TUTTI_ASSIGN_OR_RETURN(const Shape x, ShapeValue(context.input(2), "x_shape"));
  TUTTI_RETURN_IF_ERROR(CheckLast(x, indices.shape()));
  if (gradient.shape() != indices.shape()) {
    return InvalidArgument("gradient is {}, indices is {}; expected equal shapes",
                           gradient.shape().ToString(), indices.shape().ToString());
  }
  TUTTI_RETURN_IF_ERROR(CheckIndices(indices, x.dim(-1), "indices"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, x));
  const int64_t width = x.dim(-1);
  const int64_t count = indices.shape().dim(-1);
  return VisitDType(gradient.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return SumSlices<T>(context.device(), context.output(0), [&](const auto& add) {
      for (int64_t i = 0; i < indices.elements(); ++i) {
        add(i / count * width + IndexAt(indices, i), gradient.data<T>() + i, 1);
      }
      return absl::OkStatus();
    });
  });
}

absl::Status OneHot(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const OneHotGeometry g, StartOneHot(context, kernel));
  const Tensor& indices = context.input(0);
  VisitDType(context.output(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const data = context.output(0).data<T>();
    std::fill_n(data, context.output(0).elements(), FromDouble<T>(g.off));
    for (int64_t i = 0; i < indices.elements(); ++i) {
      const int64_t index = IndexAt(indices, i);
      if (index < 0 || index >= g.depth) continue;
      data[(i / g.inner * g.depth + index) * g.inner + i % g.inner] = FromDouble<T>(g.on);
    }
  });
  return absl::OkStatus();
}

absl::Status UnsortedSegmentSum(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const SegmentGeometry g, StartSegmentSum(context, kernel));
  return VisitDType(context.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return SumSlices<T>(context.device(), context.output(0), [&](const auto& add) {
      for (int64_t row = 0; row < g.rows; ++row) {
        add(IndexAt(context.input(1), row) * g.inner, context.input(0).data<T>() + row * g.inner,
            g.inner);
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void RegisterGatherRefKernels(KernelRegistry& registry) {
  AddDynamicKernel(registry, "Gather", "ref", Gather);
  AddDynamicKernel(registry, "GatherGrad", "ref", GatherGrad);
  AddDynamicKernel(registry, "GatherNd", "ref", GatherNd);
  AddDynamicKernel(registry, "ScatterNd", "ref", ScatterNd);
  AddDynamicKernel(registry, "GatherLast", "ref", GatherLast);
  AddDynamicKernel(registry, "GatherLastGrad", "ref", GatherLastGrad);
  AddDynamicKernel(registry, "OneHot", "ref", OneHot);
  AddDynamicKernel(registry, "UnsortedSegmentSum", "ref", UnsortedSegmentSum);
}

}  // namespace tutti
