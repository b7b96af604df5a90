#include "tutti/device/device.h"
#include "tutti/kernels/arrange_kernels.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/indices.h"

namespace tutti {
namespace {

// The type to add values of T in.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float,
                                 std::conditional_t<std::is_same_v<T, bool>, int, T>>;

// Each element of `output` is the sum of its copies in `gradient`, which are `plan`: dimensions in
// pairs (copies, elements), with strides of gradient as source and of output as target.
template <typename T>
void SumCopies(const StridedCopy& plan, const T* gradient, T* output, int64_t elements) {
  const int rank = plan.rank / 2;
  for (int64_t flat = 0; flat < elements; ++flat) {
    int64_t rest = flat;
    const T* first = gradient;
    for (int i = rank - 1; i >= 0; --i) {
      first += (rest % plan.dims[2 * i + 1]) * plan.source[2 * i + 1];
      rest /= plan.dims[2 * i + 1];
    }
    SumOf<T> sum{};
    std::array<int64_t, kMaxRank> at{};
    for (int i = 0; i >= 0;) {
      sum = SumOf<T>(sum + SumOf<T>(*first));
      for (i = rank - 1; i >= 0; --i) {
        first += plan.source[2 * i];
        if (++at[i] < plan.dims[2 * i]) break;
        first -= plan.source[2 * i] * plan.dims[2 * i];
        at[i] = 0;
      }
    }
    output[flat] = T(sum);
  }
}

absl::Status TileGrad(KernelContext& context, const DynamicKernel& kernel) {
  const Tensor& gradient = context.input(0);
  const auto& multiples = context.node->attr<std::vector<int64_t>>("multiples");
  TUTTI_ASSIGN_OR_RETURN(const Shape x, ShapeValue(context.input(1), "x_shape"));
  bool fits = gradient.shape().rank() == x.rank() && int(multiples.size()) == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) {
    fits = gradient.shape().dim(i) == x.dim(i) * multiples[i];
  }
  if (!fits) {
    return InvalidArgument("gradient is {}; it is no tiling of x_shape {}",
                           gradient.shape().ToString(), x.ToString());
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, x));
  Tensor& output = context.output(0);
  const auto strides = RowMajorStrides(gradient.shape());
  StridedCopy plan;
  for (int i = 0; i < x.rank(); ++i) {
    plan.Add(multiples[i], x.dim(i) * strides[i], 0);
    plan.Add(x.dim(i), strides[i], 0);
  }
  VisitDType(gradient.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (gradient.elements() == 0) {
      std::fill_n(output.data<T>(), output.elements(), T{});
    } else {
      SumCopies<T>(plan, gradient.data<T>(), output.data<T>(), output.elements());
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterArrangeRefKernels(KernelRegistry& registry) {
  RegisterMovingKernels(registry, "ref", PlainStridedCopy);
  AddDynamicKernel(registry, "TileGrad", "ref", TileGrad);
}

}  // namespace tutti
