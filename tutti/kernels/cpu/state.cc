// The plain updates of float32 variables, with the vector loops of Add and Sub.
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/vector_loops.h"
#include "tutti/kernels/update/accumulate_kernel.h"

namespace tutti {
namespace {

void AccumulateVectors(DType, bool subtract, void* to, const void* from, int64_t count) {
  static const VectorLoops& add = *FindVectorLoops("Add");
  static const VectorLoops& sub = *FindVectorLoops("Sub");
  float* const target = static_cast<float*>(to);
  (subtract ? sub : add).both(target, static_cast<const float*>(from), target, count, {});
}

}  // namespace

void RegisterStateCpuKernels(KernelRegistry& registry) {
  AddAccumulateKernels(registry, "cpu", {kFloat32}, AccumulateVectors);
}

}  // namespace tutti
