#include <array>
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/graph/ops/range_length.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/indices.h"

namespace tutti {
namespace {

void WriteIndex(Tensor& tensor, int64_t i, int64_t value) {
  if (tensor.dtype() == kInt32) {
    tensor.data<int32_t>()[i] = int32_t(value);
  } else {
    tensor.data<int64_t>()[i] = value;
  }
}

absl::Status CheckFits(const Tensor& tensor, int64_t value, std::string_view what) {
  if (tensor.dtype() == kInt64 || value <= INT32_MAX) return absl::OkStatus();
  return OutOfRange("{} is {}, too large for int32; use dtype = int64", what, value);
}

absl::Status ComputeIdentity(KernelContext& context) {
  context.SetOutput(0, context.input(0));
  return absl::OkStatus();
}

absl::Status ComputeShape(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& shape = context.input(0).shape();
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, Shape{shape.rank()}));
  Tensor& output = context.output(0);
  for (int i = 0; i < shape.rank(); ++i) {
    TUTTI_RETURN_IF_ERROR(CheckFits(output, shape.dim(i), "a dimension"));
    WriteIndex(output, i, shape.dim(i));
  }
  return absl::OkStatus();
}

absl::Status ComputeRank(KernelContext& context) {
  WriteIndex(context.output(0), 0, context.input(0).shape().rank());
  return absl::OkStatus();
}

absl::Status ComputeSize(KernelContext& context) {
  TUTTI_RETURN_IF_ERROR(
      CheckFits(context.output(0), context.input(0).elements(), "the number of elements"));
  WriteIndex(context.output(0), 0, context.input(0).elements());
  return absl::OkStatus();
}

absl::Status ComputeReshape(KernelContext& context) {
  const Tensor& x = context.input(0);
  const Tensor& wanted = context.input(1);
  const int64_t rank = wanted.elements();
  if (rank > kMaxRank) {
    return InvalidArgument("shape has {} values; a tensor has at most {} dimensions", rank,
                           kMaxRank);
  }
  std::array<int64_t, kMaxRank> dims{};
  int64_t open = -1;
  bool has_zero = false;
  for (int64_t i = 0; i < rank; ++i) {
    dims[i] = IndexAt(wanted, i);
    has_zero = has_zero || dims[i] == 0;
    if (dims[i] != -1) continue;
    if (open >= 0) {
      return InvalidArgument("shape[{}] and shape[{}] are -1; at most one may be left open", open,
                             i);
    }
    open = i;
  }
  std::string why;
  const std::span<const int64_t> given(dims.data(), size_t(rank));
  auto shape = Shape::Make(given, &why);
  if (!shape) return InvalidArgument("shape: {}", why);
  if (open >= 0) {
    const int64_t rest = has_zero ? 0 : shape->WithDim(int(open), 1).elements();
    if (rest == 0 || x.elements() % rest != 0) {
      return InvalidArgument("x is {} with {} elements, which do not divide into shape {}",
                             x.shape().ToString(), x.elements(), shape->ToString());
    }
    shape = shape->WithDim(int(open), x.elements() / rest);
  }
  if (shape->elements() != x.elements()) {
    return InvalidArgument("x is {} with {} elements, shape {} has {}", x.shape().ToString(),
                           x.elements(), shape->ToString(), shape->elements());
  }
  context.SetOutput(0, x.Reshape(*shape));
  return absl::OkStatus();
}

absl::Status ComputeExpandDims(KernelContext& context) {
  const Tensor& x = context.input(0);
  if (x.shape().rank() == kMaxRank) {
    return InvalidArgument("x is {}; a tensor has at most {} dimensions", x.shape().ToString(),
                           kMaxRank);
  }
  const int64_t given = context.node->attr<int64_t>("axis");
  const int64_t axis = given < 0 ? given + x.shape().rank() + 1 : given;
  if (axis < 0 || axis > x.shape().rank()) {
    return InvalidArgument("axis {} is out of range for x {}", given, x.shape().ToString());
  }
  context.SetOutput(0, x.Reshape(x.shape().WithInserted(int(axis), 1)));
  return absl::OkStatus();
}

absl::Status ComputeSqueeze(KernelContext& context) {
  const Tensor& x = context.input(0);
  const int rank = x.shape().rank();
  const auto& axes = context.node->attr<std::vector<int64_t>>("axes");
  std::array<bool, kMaxRank> remove{};
  for (const int64_t given : axes) {
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank || x.shape().dim(int(axis)) != 1) {
      return InvalidArgument("x is {}; it has no dimension {} of 1 to remove", x.shape().ToString(),
                             given);
    }
    remove[axis] = true;
  }
  Shape shape = x.shape();
  for (int i = rank - 1; i >= 0; --i) {
    if (remove[i] || (axes.empty() && shape.dim(i) == 1)) shape = shape.WithoutDim(i);
  }
  context.SetOutput(0, x.Reshape(shape));
  return absl::OkStatus();
}

template <typename T>
void FillWith(const Team& team, Tensor& output, T value) {
  T* const data = output.data<T>();
  team.ParallelFor(output.elements(), 64 * 1024, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] = value;
  });
}

absl::Status ComputeFill(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeValue(context.input(0), "dims"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  const Tensor& value = context.input(1);
  VisitDType(value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    FillWith<T>(context.team(), context.output(0), *value.data<T>());
  });
  return absl::OkStatus();
}

absl::Status ComputeZerosLike(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, context.input(0).shape()));
  auto* const bytes = static_cast<std::byte*>(context.output(0).raw());
  context.team().ParallelFor(
      int64_t(context.output(0).bytes()), 1 << 18,
      [=](int64_t begin, int64_t end) { std::memset(bytes + begin, 0, size_t(end - begin)); });
  return absl::OkStatus();
}

absl::Status ComputeOnesLike(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, context.input(0).shape()));
  VisitDType(context.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    FillWith<T>(context.team(), context.output(0), T(1.0f));
  });
  return absl::OkStatus();
}

template <typename T>
void WriteRange(const Tensor& start, const Tensor& delta, Tensor& output) {
  const T first = *start.data<T>();
  const T step = *delta.data<T>();
  T* const data = output.data<T>();
  const int64_t count = output.elements();
  if constexpr (std::is_integral_v<T>) {
    // Unsigned, because the value one past the last may not fit.
    using U = std::make_unsigned_t<T>;
    for (int64_t i = 0; i < count; ++i) data[i] = T(U(first) + U(i) * U(step));
  } else {
    for (int64_t i = 0; i < count; ++i) data[i] = first + T(i) * step;
  }
}

absl::Status ComputeRange(KernelContext& context, const DynamicKernel& kernel) {
  const Tensor& start = context.input(0);
  const Tensor& delta = context.input(2);
  TUTTI_ASSIGN_OR_RETURN(const int64_t count, RangeLength(start, context.input(1), delta));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, Shape{count}));
  Tensor& output = context.output(0);
  switch (start.dtype()) {
    case kInt32:
      WriteRange<int32_t>(start, delta, output);
      break;
    case kInt64:
      WriteRange<int64_t>(start, delta, output);
      break;
    case kFloat32:
      WriteRange<float>(start, delta, output);
      break;
    default:
      WriteRange<double>(start, delta, output);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterShapeRefKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "Identity", "ref", ComputeIdentity);
  AddFunctionKernel(registry, "StopGradient", "ref", ComputeIdentity);
  AddFunctionKernel(registry, "Rank", "ref", ComputeRank);
  AddFunctionKernel(registry, "Size", "ref", ComputeSize);
  AddFunctionKernel(registry, "Reshape", "ref", ComputeReshape);
  AddFunctionKernel(registry, "ExpandDims", "ref", ComputeExpandDims);
  AddFunctionKernel(registry, "Squeeze", "ref", ComputeSqueeze);
  AddDynamicKernel(registry, "Shape", "ref", ComputeShape);
  AddDynamicKernel(registry, "Fill", "ref", ComputeFill);
  AddDynamicKernel(registry, "ZerosLike", "ref", ComputeZerosLike);
  AddDynamicKernel(registry, "OnesLike", "ref", ComputeOnesLike);
  AddDynamicKernel(registry, "Range", "ref", ComputeRange);
}

}  // namespace tutti
