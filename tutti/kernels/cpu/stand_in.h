#pragma once

#include <memory>

#include "tutti/device/kernel_registry.h"

namespace tutti {

// The reference kernel inside a fast one, for the cases that the fast one does not cover.
class StandIn {
 public:
  absl::Status Prepare(PrepareContext& context) {
    if (kernel_ == nullptr) {
      const Node& node = context.node();
      const KernelDef* def =
          KernelRegistry::Global().FindExact(node.op(), "ref", KernelDType(node));
      if (def == nullptr) return Internal("{} has no reference kernel", node.op());
      kernel_ = def->make();
    }
    return kernel_->Prepare(context);
  }
  // REQUIRES: Prepare was called.
  absl::Status Compute(KernelContext& context) { return kernel_->Compute(context); }

 private:
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace tutti
