#include "tutti/kernels/arrange_kernels.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/graph/ops/strided_range.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/from_double.h"
#include "tutti/kernels/shape/indices.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

const std::byte* Bytes(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }
std::byte* Bytes(Tensor& tensor) { return static_cast<std::byte*>(tensor.raw()); }

absl::StatusOr<int> AxisOf(const KernelContext& context, int rank) {
  const int64_t given = context.node->attr<int64_t>("axis");
  if (given < -rank || given >= rank) {
    return InvalidArgument("axis {} is out of range for {} dimensions", given, rank);
  }
  return int(given < 0 ? given + rank : given);
}

void Zero(const Team& team, Tensor& tensor) {
  std::byte* const bytes = Bytes(tensor);
  team.ParallelFor(int64_t(tensor.bytes()), 1 << 18, [=](int64_t begin, int64_t end) {
    std::memset(bytes + begin, 0, size_t(end - begin));
  });
}

absl::Status Transpose(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  const int rank = x.shape().rank();
  const auto& perm = context.node->attr<Ints>("perm");
  if (!perm.empty() && int(perm.size()) != rank) {
    return InvalidArgument("perm has {} values, x is {}; expected one for each dimension",
                           perm.size(), x.shape().ToString());
  }
  const auto from = [&](int i) { return perm.empty() ? rank - 1 - i : int(perm[i]); };
  Shape shape = x.shape();
  for (int i = 0; i < rank; ++i) shape = shape.WithDim(i, x.shape().dim(from(i)));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  const auto source = RowMajorStrides(x.shape());
  const auto target = RowMajorStrides(shape);
  StridedCopy plan;
  for (int i = 0; i < rank; ++i) plan.Add(shape.dim(i), source[from(i)], target[i]);
  copy(context.team(), plan, SizeOf(x.dtype()), Bytes(x), Bytes(context.output(0)));
  return absl::OkStatus();
}

// Copies `part`, [outer, part_run], into the columns of `whole`, [outer, whole_run], that start at
// `column`; or the other way round.
struct Columns {
  int64_t outer;
  int64_t whole_run;
  int64_t part_run;
  int64_t column;
  size_t size;
};

void PutColumns(const Team& team, CopyFunction copy, const Columns& c, const Tensor& part,
                Tensor& whole) {
  StridedCopy plan;
  plan.Add(c.outer, c.part_run, c.whole_run);
  plan.Add(c.part_run, 1, 1);
  copy(team, plan, c.size, Bytes(part), Bytes(whole) + size_t(c.column) * c.size);
}

void TakeColumns(const Team& team, CopyFunction copy, const Columns& c, const Tensor& whole,
                 Tensor& part) {
  StridedCopy plan;
  plan.Add(c.outer, c.whole_run, c.part_run);
  plan.Add(c.part_run, 1, 1);
  copy(team, plan, c.size, Bytes(whole) + size_t(c.column) * c.size, Bytes(part));
}

absl::Status Concat(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Shape& first = context.input(0).shape();
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, first.rank()));
  int64_t sum = 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const Shape& shape = context.input(i).shape();
    if (shape.rank() != first.rank() || shape.WithDim(axis, 0) != first.WithDim(axis, 0)) {
      return InvalidArgument("values[{}] is {}, values[0] is {}; only dimension {} may differ", i,
                             shape.ToString(), first.ToString(), axis);
    }
    sum += shape.dim(axis);
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, first.WithDim(axis, sum)));
  if (context.output(0).elements() == 0) return absl::OkStatus();
  const int64_t inner = ProductOf(first.dims().subspan(axis + 1));
  Columns columns{ProductOf(first.dims().first(axis)), sum * inner, 0, 0,
                  SizeOf(context.input(0).dtype())};
  for (int i = 0; i < context.num_inputs(); ++i) {
    columns.part_run = context.input(i).shape().dim(axis) * inner;
    PutColumns(context.team(), copy, columns, context.input(i), context.output(0));
    columns.column += columns.part_run;
  }
  return absl::OkStatus();
}

absl::Status Pack(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Shape& first = context.input(0).shape();
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, first.rank() + 1));
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (context.input(i).shape() == first) continue;
    return InvalidArgument("values[{}] is {}, values[0] is {}; expected equal shapes", i,
                           context.input(i).shape().ToString(), first.ToString());
  }
  TUTTI_RETURN_IF_ERROR(
      kernel.SetShape(context, 0, first.WithInserted(axis, context.num_inputs())));
  if (context.output(0).elements() == 0) return absl::OkStatus();
  const int64_t inner = ProductOf(first.dims().subspan(axis));
  Columns columns{ProductOf(first.dims().first(axis)), context.num_inputs() * inner, inner, 0,
                  SizeOf(context.input(0).dtype())};
  for (int i = 0; i < context.num_inputs(); ++i) {
    PutColumns(context.team(), copy, columns, context.input(i), context.output(0));
    columns.column += inner;
  }
  return absl::OkStatus();
}

// Elements between two positions along `axis`. Of an empty tensor, whose other dimensions may
// multiply to anything, none.
int64_t InnerOf(const Shape& shape, int axis) {
  return shape.elements() == 0 ? 0 : ProductOf(shape.dims().subspan(axis + 1));
}

absl::Status Unpack(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, x.shape().rank()));
  if (x.shape().dim(axis) != context.num_outputs()) {
    return InvalidArgument("x is {}; expected {} in dimension {}", x.shape().ToString(),
                           context.num_outputs(), axis);
  }
  const int64_t inner = InnerOf(x.shape(), axis);
  Columns columns{ProductOf(x.shape().dims().first(axis)), context.num_outputs() * inner, inner, 0,
                  SizeOf(x.dtype())};
  for (int i = 0; i < context.num_outputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, i, x.shape().WithoutDim(axis)));
    TakeColumns(context.team(), copy, columns, x, context.output(i));
    columns.column += inner;
  }
  return absl::OkStatus();
}

// The parts of x along `axis`, of sizes size(0), size(1), ....
absl::Status TakeParts(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy,
                       int axis, const std::function<int64_t(int)>& size) {
  const Tensor& x = context.input(0);
  const int64_t dim = x.shape().dim(axis);
  int64_t sum = 0;
  for (int i = 0; i < context.num_outputs(); ++i) sum += size(i);
  if (sum != dim) {
    return InvalidArgument("x is {}; its dimension {} cannot be cut into {} parts of {} in all",
                           x.shape().ToString(), axis, context.num_outputs(), sum);
  }
  const int64_t inner = InnerOf(x.shape(), axis);
  Columns columns{ProductOf(x.shape().dims().first(axis)), dim * inner, 0, 0, SizeOf(x.dtype())};
  for (int i = 0; i < context.num_outputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, i, x.shape().WithDim(axis, size(i))));
    columns.part_run = size(i) * inner;
    TakeColumns(context.team(), copy, columns, x, context.output(i));
    columns.column += columns.part_run;
  }
  return absl::OkStatus();
}

absl::Status Split(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Shape& x = context.input(0).shape();
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, x.rank()));
  const auto& sizes = context.node->attr<Ints>("sizes");
  const int64_t equal = x.dim(axis) / context.num_outputs();
  return TakeParts(context, kernel, copy, axis,
                   [&](int i) { return sizes.empty() ? equal : sizes[i]; });
}

absl::Status ConcatGrad(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Shape& gradient = context.input(0).shape();
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, gradient.rank()));
  for (int i = 0; i < context.num_outputs(); ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Shape part, ShapeValue(context.input(1 + i), "shapes"));
    if (part.rank() != gradient.rank() || part.WithDim(axis, 0) != gradient.WithDim(axis, 0)) {
      return InvalidArgument("shapes[{}] is {}, gradient is {}; only dimension {} may differ", i,
                             part.ToString(), gradient.ToString(), axis);
    }
  }
  return TakeParts(context, kernel, copy, axis,
                   [&](int i) { return IndexAt(context.input(1 + i), axis); });
}

absl::Status Slice(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  const Tensor& begin = context.input(1);
  const Tensor& size = context.input(2);
  const int rank = x.shape().rank();
  if (begin.elements() != rank || size.elements() != rank) {
    return InvalidArgument(
        "begin has {} values, size has {}, x is {}; expected one for each "
        "dimension",
        begin.elements(), size.elements(), x.shape().ToString());
  }
  Shape shape = x.shape();
  int64_t offset = 0;
  const auto source = RowMajorStrides(x.shape());
  for (int i = 0; i < rank; ++i) {
    const int64_t dim = x.shape().dim(i);
    const int64_t first = IndexAt(begin, i);
    if (first < 0 || first > dim) {
      return OutOfRange("begin[{}] is {}, x is {}; expected 0 to {}", i, first,
                        x.shape().ToString(), dim);
    }
    const int64_t count = IndexAt(size, i) == -1 ? dim - first : IndexAt(size, i);
    if (count < 0 || count > dim - first) {
      return OutOfRange("size[{}] is {} from begin {}, x is {}; expected -1 or 0 to {}", i, count,
                        first, x.shape().ToString(), dim - first);
    }
    shape = shape.WithDim(i, count);
    offset += first * source[i];
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  if (shape.elements() == 0) return absl::OkStatus();
  const auto target = RowMajorStrides(shape);
  StridedCopy plan;
  for (int i = 0; i < rank; ++i) plan.Add(shape.dim(i), source[i], target[i]);
  const size_t element = SizeOf(x.dtype());
  copy(context.team(), plan, element, Bytes(x) + size_t(offset) * element,
       Bytes(context.output(0)));
  return absl::OkStatus();
}

absl::Status SliceGrad(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& gradient = context.input(0);
  const Tensor& begin = context.input(2);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeValue(context.input(1), "x_shape"));
  if (gradient.shape().rank() != shape.rank() || begin.elements() != shape.rank()) {
    return InvalidArgument("gradient is {}, begin has {} values, x_shape is {}; expected one rank",
                           gradient.shape().ToString(), begin.elements(), shape.ToString());
  }
  const auto source = RowMajorStrides(gradient.shape());
  const auto target = RowMajorStrides(shape);
  StridedCopy plan;
  int64_t offset = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t first = IndexAt(begin, i);
    const int64_t count = gradient.shape().dim(i);
    if (first < 0 || count > shape.dim(i) || first > shape.dim(i) - count) {
      return OutOfRange("begin[{}] is {}, gradient is {}; it does not lie within x_shape {}", i,
                        first, gradient.shape().ToString(), shape.ToString());
    }
    plan.Add(count, source[i], target[i]);
    offset += first * target[i];
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  Tensor& output = context.output(0);
  if (gradient.elements() != output.elements()) Zero(context.team(), output);
  if (gradient.elements() == 0) return absl::OkStatus();
  const size_t element = SizeOf(gradient.dtype());
  copy(context.team(), plan, element, Bytes(gradient), Bytes(output) + size_t(offset) * element);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StridedRange>> RangesOf(const Node& node, const Shape& x) {
  return StridedRanges(x, {node.attr<Ints>("begin"), node.attr<Ints>("end"),
                           node.attr<Ints>("strides"), node.attr<int64_t>("begin_mask"),
                           node.attr<int64_t>("end_mask"), node.attr<int64_t>("shrink_mask")});
}

// What remains of x after a StridedSlice; its plan copies from x to the slice when `taking`, and
// back else. The first element of x is at *offset.
Shape PlanStrided(const Shape& x, const std::vector<StridedRange>& ranges, bool taking,
                  StridedCopy* plan, int64_t* offset) {
  Shape shape;
  for (const StridedRange& range : ranges) {
    if (!range.shrink) shape = shape.WithInserted(shape.rank(), range.count);
  }
  const auto whole = RowMajorStrides(x);
  const auto part = RowMajorStrides(shape);
  int kept = 0;
  *offset = 0;
  for (int i = 0; i < x.rank(); ++i) {
    *offset += ranges[i].begin * whole[i];
    if (ranges[i].shrink) continue;
    const int64_t stride = ranges[i].stride * whole[i];
    plan->Add(ranges[i].count, taking ? stride : part[kept], taking ? part[kept] : stride);
    ++kept;
  }
  return shape;
}

absl::Status StridedSlice(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  TUTTI_ASSIGN_OR_RETURN(const auto ranges, RangesOf(*context.node, x.shape()));
  StridedCopy plan;
  int64_t offset = 0;
  const Shape shape = PlanStrided(x.shape(), ranges, true, &plan, &offset);
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  if (shape.elements() == 0) return absl::OkStatus();
  const size_t size = SizeOf(x.dtype());
  copy(context.team(), plan, size, Bytes(x) + size_t(offset) * size, Bytes(context.output(0)));
  return absl::OkStatus();
}

absl::Status StridedSliceGrad(KernelContext& context, const DynamicKernel& kernel,
                              CopyFunction copy) {
  const Tensor& gradient = context.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Shape x, ShapeValue(context.input(1), "x_shape"));
  TUTTI_ASSIGN_OR_RETURN(const auto ranges, RangesOf(*context.node, x));
  StridedCopy plan;
  int64_t offset = 0;
  const Shape shape = PlanStrided(x, ranges, false, &plan, &offset);
  if (gradient.shape() != shape) {
    return InvalidArgument("gradient is {}; the slice of x_shape {} is {}",
                           gradient.shape().ToString(), x.ToString(), shape.ToString());
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, x));
  Tensor& output = context.output(0);
  Zero(context.team(), output);
  if (gradient.elements() == 0) return absl::OkStatus();
  const size_t size = SizeOf(gradient.dtype());
  copy(context.team(), plan, size, Bytes(gradient), Bytes(output) + size_t(offset) * size);
  return absl::OkStatus();
}

void FillWithValue(const Team& team, Tensor& tensor, double value) {
  if (value == 0 && !std::signbit(value)) return Zero(team, tensor);
  VisitDType(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T typed = FromDouble<T>(value);
    T* const data = tensor.data<T>();
    team.ParallelFor(tensor.elements(), 1 << 16, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = typed;
    });
  });
}

absl::Status Pad(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  const auto& paddings = context.node->attr<Ints>("paddings");
  const int rank = x.shape().rank();
  if (int(paddings.size()) != 2 * rank) {
    return InvalidArgument("paddings has {} values, x is {}; expected {}", paddings.size(),
                           x.shape().ToString(), 2 * rank);
  }
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) dims[i] = paddings[2 * i] + x.shape().dim(i) + paddings[2 * i + 1];
  std::string why;
  const auto shape = Shape::Make(std::span<const int64_t>(dims.data(), size_t(rank)), &why);
  if (!shape) return InvalidArgument("the result is too large: {}", why);
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, *shape));
  Tensor& output = context.output(0);
  FillWithValue(context.team(), output, context.node->attr<double>("value"));
  const auto source = RowMajorStrides(x.shape());
  const auto target = RowMajorStrides(*shape);
  StridedCopy plan;
  int64_t offset = 0;
  for (int i = 0; i < rank; ++i) {
    plan.Add(x.shape().dim(i), source[i], target[i]);
    offset += paddings[2 * i] * target[i];
  }
  if (x.elements() == 0) return absl::OkStatus();
  const size_t size = SizeOf(x.dtype());
  copy(context.team(), plan, size, Bytes(x), Bytes(output) + size_t(offset) * size);
  return absl::OkStatus();
}

absl::Status Tile(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  const auto& multiples = context.node->attr<Ints>("multiples");
  const int rank = x.shape().rank();
  if (int(multiples.size()) != rank) {
    return InvalidArgument("multiples has {} values, x is {}; expected one for each dimension",
                           multiples.size(), x.shape().ToString());
  }
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) dims[i] = multiples[i] * x.shape().dim(i);
  std::string why;
  const auto shape = Shape::Make(std::span<const int64_t>(dims.data(), size_t(rank)), &why);
  if (!shape) return InvalidArgument("the result is too large: {}", why);
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, *shape));
  const auto source = RowMajorStrides(x.shape());
  const auto target = RowMajorStrides(*shape);
  StridedCopy plan;
  for (int i = 0; i < rank; ++i) {
    plan.Add(multiples[i], 0, x.shape().dim(i) * target[i]);
    plan.Add(x.shape().dim(i), source[i], target[i]);
  }
  copy(context.team(), plan, SizeOf(x.dtype()), Bytes(x), Bytes(context.output(0)));
  return absl::OkStatus();
}

absl::Status Reverse(KernelContext& context, const DynamicKernel& kernel, CopyFunction copy) {
  const Tensor& x = context.input(0);
  const int rank = x.shape().rank();
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, x.shape()));
  const auto strides = RowMajorStrides(x.shape());
  std::array<bool, kMaxRank> turn{};
  for (const int64_t given : context.node->attr<Ints>("axes")) {
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) {
      return InvalidArgument("axis {} is out of range for x {}", given, x.shape().ToString());
    }
    turn[axis] = true;
  }
  if (x.elements() == 0) return absl::OkStatus();
  StridedCopy plan;
  int64_t offset = 0;
  for (int i = 0; i < rank; ++i) {
    plan.Add(x.shape().dim(i), turn[i] ? -strides[i] : strides[i], strides[i]);
    if (turn[i]) offset += (x.shape().dim(i) - 1) * strides[i];
  }
  const size_t size = SizeOf(x.dtype());
  copy(context.team(), plan, size, Bytes(x) + size_t(offset) * size, Bytes(context.output(0)));
  return absl::OkStatus();
}

}  // namespace

void RegisterMovingKernels(KernelRegistry& registry, std::string_view kind, CopyFunction copy) {
  using Function = absl::Status (*)(KernelContext&, const DynamicKernel&, CopyFunction);
  const std::pair<const char*, Function> kernels[] = {{"Transpose", Transpose},
                                                      {"Concat", Concat},
                                                      {"ConcatGrad", ConcatGrad},
                                                      {"Split", Split},
                                                      {"Slice", Slice},
                                                      {"SliceGrad", SliceGrad},
                                                      {"StridedSlice", StridedSlice},
                                                      {"StridedSliceGrad", StridedSliceGrad},
                                                      {"Pad", Pad},
                                                      {"Pack", Pack},
                                                      {"Unpack", Unpack},
                                                      {"Tile", Tile},
                                                      {"Reverse", Reverse}};
  for (const auto& [op, function] : kernels) {
    AddDynamicKernel(
        registry, op, kind,
        [function = function, copy](KernelContext& context, const DynamicKernel& kernel) {
          return function(context, kernel, copy);
        });
  }
}

}  // namespace tutti
