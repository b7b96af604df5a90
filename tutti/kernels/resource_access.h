#pragma once

#include <memory>
#include <string_view>

#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"

// How kernels get at queues, mutexes and their like, which live on a device under the name of the
// node that declares them.
namespace tutti {

// The resource that `node` declares (it has an attribute "container"), made from `config` when
// there is none. FAILED_PRECONDITION when there is one that was declared otherwise.
template <typename R>
absl::StatusOr<std::shared_ptr<R>> FindResource(const Node& node, Device& device,
                                                const typename R::Config& config) {
  TUTTI_ASSIGN_OR_RETURN(
      std::shared_ptr<R> resource,
      device.resources().FindOrCreate<R>(node.attr<std::string>("container"), node.name(),
                                         [&] { return std::make_shared<R>(config); }));
  if (resource->config() == config) return resource;
  return FailedPrecondition(
      "{} \"{}\" exists on {} with other attributes; use the same or another name", node.op(),
      node.name(), device.name());
}

// A kernel for the declaring node itself, which has nothing to compute: its value is 0.
void AddResourceNodeKernel(KernelRegistry& registry, std::string_view op);

// The value of an int32 or int64 scalar. INVALID_ARGUMENT when it is none.
absl::StatusOr<int64_t> IntegerScalar(const Tensor& tensor, std::string_view name);

}  // namespace tutti
