#include "tutti/kernels/cpu/conv_activation.h"

#include <algorithm>
#include <limits>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/elementwise_kernels.h"
#include "tutti/kernels/cpu/magnitude.h"

namespace tutti {

ConvActivation::ConvActivation(const ConvProblem& problem)
    : plain_(problem),
      activation_(FindVectorLoops(problem.activation)),
      x_floats_(StoredFloats({kFloat32, problem.x}, problem.x_layout)),
      filter_floats_(problem.filter.elements()),
      y_floats_(StoredFloats({kFloat32, problem.y}, problem.y_layout)) {
  plain_.activation.clear();
}

bool ConvActivation::MayOverflow(const KernelContext& ctx) const {
  const auto largest = [&](int input, int64_t floats) {
    return double(LargestMagnitude(ctx.team(), ctx.input(input).data<float>(), floats));
  };
  // A sum has a product for each element of the filter that leads to its channel. Half of the
  // largest float leaves room for the rounding of every partial sum.
  const double products = double(filter_floats_ / std::max<int64_t>(plain_.y[3], 1));
  double bound = largest(0, x_floats_) * largest(1, filter_floats_) * products;
  if (plain_.has_bias) bound += largest(2, plain_.y[3]);
  return !(bound < std::numeric_limits<float>::max() / 2);
}

absl::Status ConvActivation::Compute(KernelContext& ctx) {
  if (primitive_ == nullptr) {
    auto primitive = std::make_unique<ConvPrimitive>();
    TUTTI_RETURN_IF_ERROR(primitive->Prepare(plain_));
    TUTTI_ASSIGN_OR_RETURN(
        scratch_, ctx.device().pool().Allocate(kUInt8, Shape{int64_t(primitive->scratch_bytes())}));
    primitive_ = std::move(primitive);
  }
  TUTTI_RETURN_IF_ERROR(primitive_->Run(const_cast<void*>(ctx.input(0).raw()),
                                        const_cast<void*>(ctx.input(1).raw()), ctx.output(0).raw(),
                                        plain_.has_bias ? ctx.input(2).raw() : nullptr,
                                        static_cast<std::byte*>(scratch_.raw())));
  float* const y = ctx.output(0).data<float>();
  ctx.team().ParallelFor(y_floats_, activation_->grain, [&](int64_t begin, int64_t end) {
    activation_->unary(y + begin, y + begin, end - begin, {});
  });
  return absl::OkStatus();
}

}  // namespace tutti
