// Select, Cast and Clip.
#include "tutti/device/device.h"
#include "tutti/kernels/ref/convert.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/ref/scalar.h"
#include "tutti/kernels/shape/broadcast.h"

namespace tutti {
namespace {

absl::Status Select(KernelContext& context) {
  const Tensor& condition = context.input(0);
  const Tensor& a = context.input(1);
  const Tensor& b = context.input(2);
  Tensor& y = context.output(0);
  const Shape shapes[] = {condition.shape(), a.shape(), b.shape()};
  const Broadcast broadcast(y.shape(), shapes);
  VisitDType(y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    broadcast.ForEachRun(
        0, y.elements(), [&](int64_t position, int64_t count, const auto& offsets) {
          const bool* pc = condition.data<bool>() + offsets[0];
          const T* pa = a.data<T>() + offsets[1];
          const T* pb = b.data<T>() + offsets[2];
          T* to = y.data<T>() + position;
          for (int64_t i = 0; i < count; ++i) {
            to[i] =
                pc[i * broadcast.step(0)] ? pa[i * broadcast.step(1)] : pb[i * broadcast.step(2)];
          }
        });
  });
  return absl::OkStatus();
}

absl::Status Cast(KernelContext& context) {
  ConvertElements(context.input(0), context.output(0), 0, context.input(0).elements());
  return absl::OkStatus();
}

absl::Status Clip(KernelContext& context) {
  const Tensor& x = context.input(0);
  Tensor& y = context.output(0);
  const double low = context.node->attr<double>("low");
  const double high = context.node->attr<double>("high");
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ref::Compute<T>;
    const C least = ref::ConvertTo<C>(low);
    const C most = ref::ConvertTo<C>(high);
    for (int64_t i = 0; i < x.elements(); ++i) {
      const C value = C(x.data<T>()[i]);
      y.data<T>()[i] = T(value < least ? least : value > most ? most : value);  // NaN stays
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterElementwiseSelectRefKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "Select", "ref", Select, {}, {{1, 0}, {2, 0}});
  AddFunctionKernel(registry, "Cast", "ref", Cast);
  AddFunctionKernel(registry, "Clip", "ref", Clip, {}, {{0, 0}});
}

}  // namespace tutti
