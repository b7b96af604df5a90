#include "tutti/testing/magnitude.h"

#include <algorithm>
#include <cmath>

#include "tutti/testing/elements.h"

namespace tutti::testing {
namespace {

constexpr double kShare = 0x1p-18;  // 64 steps of float32

// Each input moves by half of kShare at least, up or down. An element that depends on one input
// alone then shows half of its magnitude in every round. One that is a sum of many shows a sum of
// random signs, which is about normally distributed with a deviation of 3/4 of the root M of the
// sum of their squares: in one round it stays below M / 5 with a probability of 0.21, in all 16 of
// them with 1e-11. A sweep compares some 1e7 elements. The error of a kernel that rounds to nearest
// is such a sum of random signs itself, so M is what it is relative to.
constexpr int kRounds = 16;

Feeds Moved(const Feeds& feeds, Random& random) {
  Feeds moved = feeds;
  for (auto& [output, value] : moved) {
    if (!IsFloating(value.dtype())) continue;
    value = value.Clone();
    for (int64_t i = 0; i < value.elements(); ++i) {
      const double by = kShare * random.Uniform(0.5, 1);
      SetElement(value, i, ElementOf(value, i) * (1 + (random.Coin() ? by : -by)));
    }
  }
  return moved;
}

}  // namespace

absl::StatusOr<std::vector<Magnitudes>> MagnitudesOf(KernelRunner& runner, const Feeds& feeds,
                                                     std::span<const Output> fetches,
                                                     std::span<const Node* const> targets,
                                                     std::span<const Tensor> values,
                                                     Random& random) {
  std::vector<Magnitudes> magnitudes;
  for (const Tensor& value : values) {
    magnitudes.emplace_back();
    for (int64_t i = 0; i < value.elements(); ++i) {
      const double size = std::abs(ElementOf(value, i));
      magnitudes.back().push_back(std::isfinite(size) ? size : 0);
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    runner.set_random_step(0);
    TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> moved,
                           runner.Run(Moved(feeds, random), fetches, targets));
    for (size_t k = 0; k < values.size(); ++k) {
      if (moved[k].shape() != values[k].shape()) continue;
      for (int64_t i = 0; i < values[k].elements(); ++i) {
        const double by = std::abs(ElementOf(moved[k], i) - ElementOf(values[k], i));
        double& magnitude = magnitudes[k][size_t(i)];
        if (std::isfinite(by)) magnitude = std::max(magnitude, by / kShare);
      }
    }
  }
  return magnitudes;
}

}  // namespace tutti::testing
