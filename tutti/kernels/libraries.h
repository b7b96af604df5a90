#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The libraries that the kernels run on, by name and version, as found when the program runs.
std::vector<std::pair<std::string, std::string>> KernelLibraries();

// The instruction set that SIMD kernels choose on this machine ("AVX2").
std::string SimdTarget();

}  // namespace tutti
