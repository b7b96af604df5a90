#pragma once

#include <span>

#include "tutti/device/kernel_registry.h"
#include "tutti/kernels/broadcast.h"
#include "tutti/kernels/cpu/vector_loops.h"

// Float32 kernels made of vector loops; the families elementwise and activation register them.
namespace tutti {

// The loops that run `node`, which is an op of the table (Gelu by its attribute), or null.
const VectorLoops* LoopsFor(const Node& node);
// Its alpha, or the bounds of Clip.
VectorParams ParamsOf(const Node& node);

// How many floats a value takes in memory: all of its elements, and the padding of a blocked
// layout.
int64_t StoredFloats(const ValueType& type, const Layout& layout);

// y = f(x), in any layout.
class UnaryLoopKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override;
  absl::Status Compute(KernelContext& context) override;

 private:
  const VectorLoops* loops_ = nullptr;
  VectorParams params_;
  int64_t count_ = 0;
};

// y = f(a, b) of one shape, in any layout: the gradients of activations.
class PairLoopKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override;
  absl::Status Compute(KernelContext& context) override;

 private:
  const VectorLoops* loops_ = nullptr;
  VectorParams params_;
  int64_t count_ = 0;
};

// y = f(a, b) with broadcasting; row-major.
class BinaryLoopKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override;
  absl::Status Compute(KernelContext& context) override;

 private:
  void RunRows(const float* a, const float* b, float* y, int64_t begin, int64_t end) const;
  void RunRepeated(const float* a, const float* b, float* y, int64_t begin, int64_t end) const;

  const VectorLoops* loops_ = nullptr;
  Broadcast broadcast_;
  bool ready_ = false;
  int repeated_ = -1;  // the input whose short row is repeated, or -1
};

// A unary or pair kernel for float32. Blocked layouts pad with zeros and expect zeros: only a
// function that maps zeros to zero may run in any layout.
void AddUnaryLoop(KernelRegistry& registry, const char* op, bool zero_at_zero);
void AddPairLoop(KernelRegistry& registry, const char* op);

// Parts of the family elementwise in files of their own.
void RegisterCompareCpuKernels(KernelRegistry& registry);  // elementwise_compare.cc
void RegisterLogicalCpuKernels(KernelRegistry& registry);  // elementwise_logical.cc

}  // namespace tutti
