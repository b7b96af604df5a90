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
// more than tolerance * max(1, largest magnitude of `expected`); NaN equals NaN, infinities must be
// equal. Else INTERNAL with the worst element, named by its index.
absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, double tolerance);

struct GradientCheckOptions {
  double tolerance = 1e-6;
  double step = 5e-5;  // of the differences
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
// OK when `actual`'s results are within tolerance of `expected`'s.
absl::Status CompareGradients(KernelRunner& actual, KernelRunner& expected,
                              std::span<const Output> ys, std::span<const Output> xs,
                              const Feeds& feeds, Random& random, double tolerance);

}  // namespace tutti::testing
