#pragma once

#include <span>

#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/kernels/cpu/vector_loops.h"
#include "tutti/kernels/shape/broadcast.h"

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

// A loop over pairs of elements. Steps are 0 or 1: whether an array moves along or is a single
// value.
template <typename In, typename Out>
using PairLoop = void (*)(const In* a, int step_a, const In* b, int step_b, Out* y, int64_t n);

// Runs `loop` over what inputs 0 and 1 broadcast to, on the cores of the team, `grain` elements or
// more at a time. REQUIRES: In and Out are as wide as the elements of inputs and output.
template <typename In, typename Out>
absl::Status RunBroadcastPair(KernelContext& context, PairLoop<In, Out> loop, int64_t grain) {
  const Tensor& a = context.input(0);
  const Tensor& b = context.input(1);
  const auto* const from_a = static_cast<const In*>(a.raw());
  const auto* const from_b = static_cast<const In*>(b.raw());
  auto* const to = static_cast<Out*>(context.output(0).raw());
  const Shape shapes[] = {a.shape(), b.shape()};
  const Broadcast broadcast(context.output(0).shape(), shapes);
  context.team().ParallelFor(broadcast.elements(), grain, [&](int64_t begin, int64_t end) {
    broadcast.ForEachRun(begin, end, [&](int64_t position, int64_t count, const auto& offsets) {
      loop(from_a + offsets[0], broadcast.step(0), from_b + offsets[1], broadcast.step(1),
           to + position, count);
    });
  });
  return absl::OkStatus();
}

// A unary or pair kernel for float32. Blocked layouts pad with zeros and expect zeros: only a
// function that maps zeros to zero may run in any layout.
void AddUnaryLoop(KernelRegistry& registry, const char* op, bool zero_at_zero);
void AddPairLoop(KernelRegistry& registry, const char* op);

// Parts of the family elementwise in files of their own.
void RegisterCompareCpuKernels(KernelRegistry& registry);  // elementwise_compare.cc
void RegisterLogicalCpuKernels(KernelRegistry& registry);  // elementwise_logical.cc

}  // namespace tutti
