#include "tutti/kernels/libraries.h"

#include <fmt/format.h>
#include <hwy/base.h>
#include <hwy/highway.h>

#include <Eigen/Core>
#include <oneapi/dnnl/dnnl.hpp>

namespace tutti {

std::vector<std::pair<std::string, std::string>> KernelLibraries() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {
      {"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
      {"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
      {"Eigen",
       fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
  };
}

std::string SimdTarget() {
  // Targets are bits; the lowest one that is set is the best.
  const auto targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

}  // namespace tutti
