#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/device/kernel.h"
#include "tutti/device/kernel_registry.h"

namespace tutti {

// A kernel whose output shapes may depend on the values of its inputs. It computes a shape, calls
// SetShape, and then has an output of that shape: the planned memory where the plan knew the
// shape, memory of the device's pool where it did not.
class DynamicKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    planned_.clear();
    for (int i = 0; i < context.num_outputs(); ++i) planned_.push_back(context.output(i).shape);
    return absl::OkStatus();
  }

  absl::Status SetShape(KernelContext& context, int i, const Shape& shape) const {
    const bool planned = size_t(i) < planned_.size() && planned_[i].IsFullyKnown();
    const Tensor& output = context.output(i);
    if (planned && output.valid() && output.shape() == shape) return absl::OkStatus();
    return context.AllocateOutput(i, shape);
  }

 private:
  std::vector<Shape> planned_;
};

// Registers a DynamicKernel made from a function.
inline void AddDynamicKernel(
    KernelRegistry& registry, std::string_view op, std::string_view kind,
    std::function<absl::Status(KernelContext&, const DynamicKernel&)> compute,
    std::vector<DType> dtypes = {}, std::vector<std::pair<int, int>> in_place = {}) {
  class FromFunction final : public DynamicKernel {
   public:
    explicit FromFunction(
        std::function<absl::Status(KernelContext&, const DynamicKernel&)> function)
        : function_(std::move(function)) {}
    absl::Status Compute(KernelContext& context) override { return function_(context, *this); }

   private:
    std::function<absl::Status(KernelContext&, const DynamicKernel&)> function_;
  };
  registry.Add({.op = std::string(op),
                .kind = std::string(kind),
                .dtypes = std::move(dtypes),
                .make = [compute] { return std::make_unique<FromFunction>(compute); },
                .in_place = std::move(in_place)});
}

}  // namespace tutti
