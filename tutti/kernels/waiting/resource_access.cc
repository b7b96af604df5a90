#include "tutti/kernels/waiting/resource_access.h"

namespace tutti {

void AddResourceNodeKernel(KernelRegistry& registry, std::string_view op) {
  AddFunctionKernel(registry, op, "cpu", [](KernelContext& c) {
    *c.output(0).data<int64_t>() = 0;
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> IntegerScalar(const Tensor& tensor, std::string_view name) {
  if (tensor.elements() == 1 && tensor.dtype() == kInt64) return *tensor.data<int64_t>();
  if (tensor.elements() == 1 && tensor.dtype() == kInt32) return *tensor.data<int32_t>();
  return InvalidArgument("{} is {} {}; expected an int32 or int64 scalar", name,
                         NameOf(tensor.dtype()), tensor.shape().ToString());
}

}  // namespace tutti
