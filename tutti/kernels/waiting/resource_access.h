#pragma once

#include <fmt/format.h>

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
  const auto& container = node.attr<std::string>("container");
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Resource> there,
                         device.resources().FindOrCreate<Resource>(
                             container, node.name(), [&] { return std::make_shared<R>(config); }));
  const auto resource = std::dynamic_pointer_cast<R>(there);
  if (resource == nullptr) {
    return FailedPrecondition(
        "{} on {}: \"{}\" is already a {} there (container \"{}\"); use another name or another "
        "container",
        node.Describe(), device.name(), node.name(), there->kind(), container);
  }
  if (resource->config() == config) return resource;
  return FailedPrecondition(
      "{} on {}: it exists there (container \"{}\") with {}, and this graph declares {}; use the "
      "same declaration, another name or another container",
      node.Describe(), device.name(), container, resource->config().ToString(), config.ToString());
}

// A kernel for the declaring node itself, which has nothing to compute: its value is 0.
void AddResourceNodeKernel(KernelRegistry& registry, std::string_view op);

// The value of an int32 or int64 scalar. INVALID_ARGUMENT when it is none.
absl::StatusOr<int64_t> IntegerScalar(const Tensor& tensor, std::string_view name);

}  // namespace tutti
