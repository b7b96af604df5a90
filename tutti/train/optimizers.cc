#include "tutti/train/optimizers.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/update.h"

namespace tutti {
namespace {

// [lo, hi) unless hi is 0, then from lo on.
void RequireRange(const char* optimizer, const char* option, double value, double lo, double hi) {
  if (value >= lo && std::isfinite(value) && (hi == 0 || value < hi)) return;
  ThrowInvalidArgument(
      hi == 0 ? fmt::format("{}: {} is {}; expected at least {}", optimizer, option, value, lo)
              : fmt::format("{}: {} is {}; expected at least {} and below {}", optimizer, option,
                            value, lo, hi));
}

std::optional<Input> Optional(Output scale) {
  return scale ? std::optional<Input>(scale) : std::nullopt;
}

}  // namespace

Sgd::Sgd(const SgdConfig& config) : Optimizer(config.learning_rate) {}

Output Sgd::Update(const UpdateContext& c) const {
  const GradientDescentOptions options{.scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyGradientDescentSparse(c.variable, c.learning_rate, c.gradient.indices,
                                      c.gradient.rows, options);
  }
  return ApplyGradientDescent(c.variable, c.learning_rate, c.gradient.dense, options);
}

Momentum::Momentum(const MomentumConfig& config)
    : Optimizer(config.learning_rate), config_(config) {
  RequireRange("Momentum", "momentum", config.momentum, 0, 1);
}

Output Momentum::Update(const UpdateContext& c) const {
  const Output slot = c.Slot("momentum");
  const MomentumOptions options{
      .momentum = config_.momentum, .nesterov = config_.nesterov, .scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyMomentumSparse(c.variable, slot, c.learning_rate, c.gradient.indices,
                               c.gradient.rows, options);
  }
  return ApplyMomentum(c.variable, slot, c.learning_rate, c.gradient.dense, options);
}

Adagrad::Adagrad(const AdagradConfig& config) : Optimizer(config.learning_rate), config_(config) {
  RequireRange("Adagrad", "initial_sum", config.initial_sum, 0, 0);
  RequireRange("Adagrad", "epsilon", config.epsilon, 0, 0);
}

Output Adagrad::Update(const UpdateContext& c) const {
  const Output sum = c.Slot("square_sum", config_.initial_sum);
  const AdagradOptions options{.epsilon = config_.epsilon, .scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyAdagradSparse(c.variable, sum, c.learning_rate, c.gradient.indices, c.gradient.rows,
                              options);
  }
  return ApplyAdagrad(c.variable, sum, c.learning_rate, c.gradient.dense, options);
}

RMSProp::RMSProp(const RMSPropConfig& config) : Optimizer(config.learning_rate), config_(config) {
  RequireRange("RMSProp", "rho", config.rho, 0, 1);
  RequireRange("RMSProp", "momentum", config.momentum, 0, 1);
  RequireRange("RMSProp", "epsilon", config.epsilon, 0, 0);
}

Output RMSProp::Update(const UpdateContext& c) const {
  const Output mean = c.Slot("square_mean");
  RMSPropOptions options{.rho = config_.rho,
                         .epsilon = config_.epsilon,
                         .momentum = config_.momentum,
                         .scale = Optional(c.scale)};
  if (config_.momentum != 0) options.momentum_slot = c.Slot("momentum");
  if (c.gradient.sparse()) {
    return ApplyRMSPropSparse(c.variable, mean, c.learning_rate, c.gradient.indices,
                              c.gradient.rows, options);
  }
  return ApplyRMSProp(c.variable, mean, c.learning_rate, c.gradient.dense, options);
}

Adam::Adam(const AdamConfig& config) : Optimizer(config.learning_rate), config_(config) {
  RequireRange("Adam", "beta1", config.beta1, 0, 1);
  RequireRange("Adam", "beta2", config.beta2, 0, 1);
  RequireRange("Adam", "epsilon", config.epsilon, 0, 0);
}

Output Adam::Update(const UpdateContext& c) const {
  const Output m = c.Slot("m");
  const Output v = c.Slot("v");
  const AdamOptions options{.beta1 = config_.beta1,
                            .beta2 = config_.beta2,
                            .epsilon = config_.epsilon,
                            .scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyAdamSparse(c.variable, m, v, c.learning_rate, c.step, c.gradient.indices,
                           c.gradient.rows, options);
  }
  return ApplyAdam(c.variable, m, v, c.learning_rate, c.step, c.gradient.dense, options);
}

AdamW::AdamW(const AdamWConfig& config) : Optimizer(config.learning_rate), config_(config) {
  RequireRange("AdamW", "beta1", config.beta1, 0, 1);
  RequireRange("AdamW", "beta2", config.beta2, 0, 1);
  RequireRange("AdamW", "epsilon", config.epsilon, 0, 0);
  RequireRange("AdamW", "weight_decay", config.weight_decay, 0, 0);
}

Output AdamW::Update(const UpdateContext& c) const {
  const Output m = c.Slot("m");
  const Output v = c.Slot("v");
  const AdamWOptions options{.beta1 = config_.beta1,
                             .beta2 = config_.beta2,
                             .epsilon = config_.epsilon,
                             .weight_decay = config_.weight_decay,
                             .scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyAdamWSparse(c.variable, m, v, c.learning_rate, c.step, c.gradient.indices,
                            c.gradient.rows, options);
  }
  return ApplyAdamW(c.variable, m, v, c.learning_rate, c.step, c.gradient.dense, options);
}

Ftrl::Ftrl(const FtrlConfig& config) : Optimizer(config.learning_rate), config_(config) {
  RequireRange("Ftrl", "l1", config.l1, 0, 0);
  RequireRange("Ftrl", "l2", config.l2, 0, 0);
  RequireRange("Ftrl", "beta", config.beta, 0, 0);
}

Output Ftrl::Update(const UpdateContext& c) const {
  const Output n = c.Slot("n");
  const Output z = c.Slot("z");
  const FtrlOptions options{
      .l1 = config_.l1, .l2 = config_.l2, .beta = config_.beta, .scale = Optional(c.scale)};
  if (c.gradient.sparse()) {
    return ApplyFtrlSparse(c.variable, n, z, c.learning_rate, c.gradient.indices, c.gradient.rows,
                           options);
  }
  return ApplyFtrl(c.variable, n, z, c.learning_rate, c.gradient.dense, options);
}

}  // namespace tutti
