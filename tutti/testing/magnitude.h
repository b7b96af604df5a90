#pragma once

#include <span>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti::testing {

// For each element of a value: the magnitude that an error of rounding is relative to.
using Magnitudes = std::vector<double>;

// The magnitudes of each of `fetches`, whose values with `feeds` are `values`.
//
// A small result is not rounded to within a small error if it is the difference of large numbers.
// How large they were is not to be seen from the result, but from what happens to it when the
// inputs change a little: an element that moves by d when the inputs move by a share s of their
// own size was made of numbers of about d / s. So the inputs are moved at random several times, and
// the largest of these quotients, and of the element itself, is its magnitude. The product of two
// numbers is thus compared to within its own size, however small, and a sum to within that of its
// terms.
//
// What does not move with the inputs is not seen: in 1 - exp(x) near x = 0 both numbers are 1, and
// a row of one element minus its mean is 0 wherever it lies. OpSample::least_magnitude is for ops
// that have such differences.
absl::StatusOr<std::vector<Magnitudes>> MagnitudesOf(KernelRunner& runner, const Feeds& feeds,
                                                     std::span<const Output> fetches,
                                                     std::span<const Node* const> targets,
                                                     std::span<const Tensor> values,
                                                     Random& random);

}  // namespace tutti::testing
