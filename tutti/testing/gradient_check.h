#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti::testing {

// How far `actual` is from `expected`: OK when types and shapes are equal and no element differs by
// more than `tolerance` times its magnitude; NaN equals NaN, infinities must be equal. Else
// INTERNAL with the worst element, named by its index. `magnitudes` has a number for each element
// (see magnitude.h); empty: all have the largest size of an element of `expected`.
absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, double tolerance,
                            std::span<const double> magnitudes = {});

struct GradientCheckOptions {
  double tolerance = 1e-6;  // of the derivative; what rounding does to differences is added
  double step = 5e-5;       // of the differences
  // How large the numbers are, at least, that ys are made of: rounding is relative to it.
  double least_magnitude = 0;
  // Inputs of at most this many elements are checked element by element, larger ones along random
  // directions and at random elements.
  int64_t every_element_up_to = 24;
  int directions = 6;
};

// Compares Gradients(ys, xs), computed by the reference kernels, with central differences of fourth
// order of ys, all in float64. `feeds` has the values of the xs and of every other placeholder. ys
// are projected on random vectors, so one gradient covers all their elements. Builds the gradient
// into the graph. INTERNAL with x, place, both values when they differ; other errors as they come.
absl::Status CheckGradient(std::span<const Output> ys, std::span<const Output> xs,
                           const Feeds& feeds, Random& random,
                           const GradientCheckOptions& options = {});

// The gradients of ys with respect to xs with the given vectors arriving at ys, by each runner;
// OK when `actual`'s results are within `tolerance` of `expected`'s, relative to their magnitudes
// (see magnitude.h), which are taken to be `least` at least.
absl::Status CompareGradients(KernelRunner& actual, KernelRunner& expected,
                              std::span<const Output> ys, std::span<const Output> xs,
                              const Feeds& feeds, Random& random, double tolerance,
                              double least = 0);

}  // namespace tutti::testing
