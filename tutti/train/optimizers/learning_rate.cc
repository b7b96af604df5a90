#include "tutti/train/optimizers/learning_rate.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tutti/base/status.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

void RequireRate(const char* what, const char* option, double rate) {
  if (!(rate >= 0) || !std::isfinite(float(rate))) {
    ThrowInvalidArgument(
        fmt::format("{}: {} is {}; expected a finite float32 from 0 on", what, option, rate));
  }
}

void RequireSteps(const char* what, int64_t steps) {
  if (steps < 1) {
    ThrowInvalidArgument(fmt::format("{}: steps is {}; expected at least 1", what, steps));
  }
}

// How much of `steps` has passed, at most 1.
Output Share(Output step, int64_t steps) { return Minimum(Div(step, double(steps)), 1.0); }

}  // namespace

LearningRate::LearningRate(double constant) : constant_(constant) {
  RequireRate("LearningRate", "the constant", constant);
}

Output LearningRate::Build(Output global_step) const {
  Graph& graph = global_step.graph();
  if (!function_) return Constant(graph, float(constant_));
  return Cast(BuildFrom(Cast(global_step, kFloat64)), kFloat32);
}

Output LearningRate::BuildFrom(Output step) const {
  return function_ ? function_(step) : Constant(step.graph(), constant_);
}

LearningRate StepDecay(const StepDecayOptions& options) {
  RequireRate("StepDecay", "initial", options.initial);
  RequireRate("StepDecay", "factor", options.factor);
  for (size_t i = 0; i < options.boundaries.size(); ++i) {
    const int64_t previous = i == 0 ? 0 : options.boundaries[i - 1];
    if (options.boundaries[i] <= previous) {
      ThrowInvalidArgument(
          fmt::format("StepDecay: boundary {} is {}; boundaries must grow, from 1 on", i,
                      options.boundaries[i]));
    }
  }
  return LearningRate([options](Output step) {
    Output rate = Constant(step.graph(), options.initial);
    for (const int64_t boundary : options.boundaries) {
      const Output passed = Cast(GreaterEqual(step, double(boundary)), kFloat64);
      rate = Mul(rate, Add(Mul(passed, options.factor - 1), 1.0));
    }
    return rate;
  });
}

LearningRate ExponentialDecay(const ExponentialDecayOptions& options) {
  RequireRate("ExponentialDecay", "initial", options.initial);
  RequireRate("ExponentialDecay", "factor", options.factor);
  RequireSteps("ExponentialDecay", options.steps);
  return LearningRate([options](Output step) {
    Output exponent = Div(step, double(options.steps));
    if (options.staircase) exponent = Floor(exponent);
    return Mul(Pow(Constant(step.graph(), options.factor), exponent), options.initial);
  });
}

LearningRate CosineDecay(const CosineDecayOptions& options) {
  RequireRate("CosineDecay", "initial", options.initial);
  RequireRate("CosineDecay", "last", options.last);
  RequireSteps("CosineDecay", options.steps);
  return LearningRate([options](Output step) {
    const Output turned = Cos(Mul(Share(step, options.steps), std::numbers::pi));
    const double half = (options.initial - options.last) / 2;
    return Add(Mul(turned, half), options.last + half);
  });
}

LearningRate PolynomialDecay(const PolynomialDecayOptions& options) {
  RequireRate("PolynomialDecay", "initial", options.initial);
  RequireRate("PolynomialDecay", "last", options.last);
  RequireRate("PolynomialDecay", "power", options.power);
  RequireSteps("PolynomialDecay", options.steps);
  return LearningRate([options](Output step) {
    Output left = Sub(1.0, Share(step, options.steps));
    if (options.power != 1) left = Pow(left, options.power);
    return Add(Mul(left, options.initial - options.last), options.last);
  });
}

LearningRate WithWarmup(int64_t steps, const LearningRate& after) {
  RequireSteps("WithWarmup", steps);
  return LearningRate([steps, after](Output step) {
    const Output rate = after.BuildFrom(Maximum(Sub(step, double(steps)), 0.0));
    const Output share = Minimum(Div(Add(step, 1.0), double(steps) + 1), 1.0);
    return Mul(rate, share);
  });
}

}  // namespace tutti
