#pragma once

#include <memory>

#include "tutti/device/kernel.h"
#include "tutti/kernels/cpu/conv_primitive.h"
#include "tutti/kernels/cpu/vector_loops.h"

namespace tutti {

// The slow way of a forward convolution with an activation, for values with which the fast one
// would be wrong. oneDNN's activations are not made for NaN: eltwise_relu and eltwise_clip turn it
// into a number, so that a network that has diverged would look sound. Where the sums of a
// convolution can be NaN it runs without the activation, and the loops of the activation's own op
// follow. Not thread-safe.
class ConvActivation {
 public:
  // REQUIRES: the problem is forward and has an activation.
  explicit ConvActivation(const ConvProblem& problem);

  // May a sum of these inputs (x, filter, and perhaps a bias) be infinite or NaN? Reads all of
  // them once, which does not show: `tutti bench step --model cnn --threads 1` takes 23.1 and 23.4
  // ms with it, 23.9 without.
  bool MayOverflow(const KernelContext& ctx) const;

  // Computes the node without oneDNN's activation. The first call makes the primitive.
  absl::Status Compute(KernelContext& ctx);

 private:
  ConvProblem plain_;  // without the activation
  const VectorLoops* activation_;
  int64_t x_floats_, filter_floats_, y_floats_;
  std::unique_ptr<ConvPrimitive> primitive_;
  Tensor scratch_;
};

}  // namespace tutti
