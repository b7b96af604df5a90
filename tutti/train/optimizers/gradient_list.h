#pragma once

#include <span>
#include <vector>

#include "tutti/autodiff/gradients.h"

// What lies between Optimizer::Gradients and Optimizer::Apply: a list on which strategies (summing
// over workers) and clipping work.
namespace tutti {

// A variable and how the loss changes with it: a dense value or some rows of one.
struct GradientAndVariable {
  GradientValue gradient;
  Output variable;
  // A scalar that the update multiplies the gradient with on its way; empty for 1. With 0 the
  // update leaves the variable and its slots as they are. So a stage can scale without touching
  // memory.
  Output scale = {};
};

// The entry with its gradient multiplied by `factor` as well.
GradientAndVariable Scaled(GradientAndVariable entry, Output factor);

// sqrt of the sum of squares over all gradients of the list, scales included; a float32 scalar.
// Rows that name one row several times are summed first, so it is the norm of what is applied.
// Entries without a gradient count nothing. Throws Error when no entry has one.
Output GlobalNorm(std::span<const GradientAndVariable> list);

// The list with all gradients scaled by one factor, so that their global norm is at most `norm`.
// The directions stay. Throws Error unless norm > 0. `global_norm`, unless null, receives the norm
// before.
std::vector<GradientAndVariable> ClipByGlobalNorm(std::span<const GradientAndVariable> list,
                                                  double norm, Output* global_norm = nullptr);

}  // namespace tutti
