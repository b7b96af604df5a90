#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// The gradient of a value: dense, or only of some rows of its first dimension (what Gather leaves),
// or nothing.
struct GradientValue {
  Output dense = {};
  Output indices = {};  // int32 or int64, [count]; may repeat
  Output rows = {};     // [count, ...]

  bool empty() const { return !dense && !rows; }
  bool sparse() const { return bool(rows); }
};

struct GradientsOptions {
  // The gradients that arrive at ys, one each, of their shapes. Empty: ones.
  std::vector<Output> initial = {};
};

// The sum over all ys of d(y)/d(x), for each x, built into the graph of ys by reverse-mode
// differentiation. Empty where no y depends on x. Throws Error naming the op when one on the path
// has no gradient.
std::vector<GradientValue> SparseGradients(std::span<const Output> ys, std::span<const Output> xs,
                                           const GradientsOptions& options = {});

// The same with rows scattered into dense values, and zeros where no y depends on x.
std::vector<Output> Gradients(std::span<const Output> ys, std::span<const Output> xs,
                              const GradientsOptions& options = {});
inline std::vector<Output> Gradients(Output y, const std::vector<Output>& xs) {
  return Gradients(std::span(&y, 1), std::span(xs));
}

// `gradient` as a dense value of the shape of `x`.
Output Densify(const GradientValue& gradient, Output x);

}  // namespace tutti
