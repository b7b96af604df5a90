#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// A learning rate: a number, or a function of the global step that is built into the graph, so that
// it is the same for every worker and goes on where a checkpoint left off. A plain value.
//
//   Adam({.learning_rate = 1e-3});
//   Adam({.learning_rate = WithWarmup(500, CosineDecay({.initial = 1e-3, .steps = 10'000}))});
class LearningRate {
 public:
  // Builds a float64 scalar from `step`, a float64 scalar: how many updates were made before.
  using Function = std::function<Output(Output step)>;

  // Throws Error unless it is a finite float32 from 0 on.
  LearningRate(double constant);  // NOLINT: implicit
  explicit LearningRate(Function function) : function_(std::move(function)) {}

  // The rate at `global_step` (an integer scalar) as a float32 scalar.
  Output Build(Output global_step) const;

  // The same from a float64 scalar and in float64: what schedules of schedules use.
  Output BuildFrom(Output step) const;

 private:
  double constant_ = 0;
  Function function_;
};

// Each throws Error for steps below 1, rates below 0 and the like, naming the option.

struct StepDecayOptions {
  double initial = 0;
  std::vector<int64_t> boundaries = {};  // ascending; at each the rate is multiplied by `factor`
  double factor = 0.1;
};
LearningRate StepDecay(const StepDecayOptions& options);

struct ExponentialDecayOptions {
  double initial = 0;
  int64_t steps = 1;  // the rate is multiplied by `factor` over this many steps
  double factor = 0.5;
  bool staircase = false;  // decay at multiples of `steps` only, not continuously
};
LearningRate ExponentialDecay(const ExponentialDecayOptions& options);

struct CosineDecayOptions {
  double initial = 0;
  int64_t steps = 1;  // after which the rate is `last`
  double last = 0;
};
LearningRate CosineDecay(const CosineDecayOptions& options);

struct PolynomialDecayOptions {
  double initial = 0;
  int64_t steps = 1;
  double last = 0;
  double power = 1;  // 1: a straight line
};
LearningRate PolynomialDecay(const PolynomialDecayOptions& options);

// Grows linearly from rate / (steps + 1) over the first `steps` updates, then follows `after`,
// whose step 0 is the end of the warm-up.
LearningRate WithWarmup(int64_t steps, const LearningRate& after);

}  // namespace tutti
