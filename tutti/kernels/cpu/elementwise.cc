#include <algorithm>
#include <array>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/elementwise_kernels.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/ref/convert.h"

namespace tutti {
namespace {

// Sums tile by tile, so that the partial sums stay in the first-level cache.
class AddNKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    add_ = FindVectorLoops("Add");
    count_ = StoredFloats(context.output(0), context.output_layout(0));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& context) override {
    float* y = context.output(0).data<float>();
    const int64_t count = count_ >= 0 ? count_ : context.output(0).elements();
    // y may have the memory of the first value. If that value comes again, it must not change
    // before it was read again.
    bool aliased = false;
    for (int i = 2; i < context.num_inputs(); ++i) {
      aliased = aliased || context.input(i).raw() == y;
    }
    context.team().ParallelFor(count, add_->grain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kTile) {
        SumTile(context, y, at, std::min(kTile, end - at), aliased);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kTile = 2048;

  void SumTile(KernelContext& context, float* y, int64_t at, int64_t n, bool aliased) const {
    const float* first = context.input(0).data<float>() + at;
    std::array<float, kTile> buffer;
    float* sum = aliased ? buffer.data() : y + at;
    if (context.num_inputs() == 1 && first != sum) std::copy_n(first, n, sum);
    for (int i = 1; i < context.num_inputs(); ++i) {
      add_->both(i == 1 ? first : sum, context.input(i).data<float>() + at, sum, n, {});
    }
    if (aliased) std::copy_n(sum, n, y + at);
  }

  const VectorLoops* add_ = nullptr;
  int64_t count_ = 0;
};

absl::Status Cast(KernelContext& context) {
  const Tensor& x = context.input(0);
  Tensor& y = context.output(0);
  context.team().ParallelFor(
      x.elements(), 8192, [&](int64_t begin, int64_t end) { ConvertElements(x, y, begin, end); });
  return absl::OkStatus();
}

}  // namespace

void RegisterElementwiseCpuKernels(KernelRegistry& registry) {
  for (const char* op :
       {"Neg", "Abs", "Sign", "Square", "Sqrt", "Sin", "Erf", "Floor", "Ceil", "Round", "Log1p"}) {
    AddUnaryLoop(registry, op, /*zero_at_zero=*/true);
  }
  for (const char* op : {"Rsqrt", "Exp", "Log", "Cos", "Clip"}) {
    AddUnaryLoop(registry, op, /*zero_at_zero=*/false);
  }
  for (const char* op : {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Maximum", "Minimum",
                         "SquaredDifference"}) {
    AddKernel<BinaryLoopKernel>(registry, op, "cpu", {kFloat32}, {{0, 0}, {1, 0}});
  }
  registry.Add({.op = "AddN",
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [] { return std::make_unique<AddNKernel>(); },
                .in_place = {{0, 0}},
                .any_layout = true});
  AddFunctionKernel(registry, "Cast", "cpu", Cast);
  RegisterCompareCpuKernels(registry);
  RegisterLogicalCpuKernels(registry);
}

}  // namespace tutti
