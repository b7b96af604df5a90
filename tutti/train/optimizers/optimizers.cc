#include "tutti/train/optimizers/optimizers.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/update_table.h"

namespace tutti {
namespace {

// `value`, if it is finite and at least 0.
double NotNegative(const char* optimizer, const char* option, double value) {
  if (value >= 0 && std::isfinite(value)) return value;
  ThrowInvalidArgument(fmt::format("{}: {} is {}; expected at least 0", optimizer, option, value));
}

// `value`, if it is in [0, 1).
double Fraction(const char* optimizer, const char* option, double value) {
  if (value >= 0 && value < 1) return value;
  ThrowInvalidArgument(
      fmt::format("{}: {} is {}; expected at least 0 and below 1", optimizer, option, value));
}

}  // namespace

Output TableOptimizer::Update(const UpdateContext& c) const {
  UpdateInputs inputs{.references = {c.variable}, .scalars = {c.learning_rate}};
  for (const SlotRule& slot : recipe_.slots) {
    inputs.references.push_back(c.Slot(slot.name, slot.initial));
  }
  if (FindUpdateOp(recipe_.op)->takes_step) inputs.scalars.push_back(c.step);
  if (c.gradient.sparse()) {
    inputs.gradient = {c.gradient.indices, c.gradient.rows};
  } else {
    inputs.gradient = {c.gradient.dense};
  }
  if (c.scale) inputs.scale = Input(c.scale);
  return BuildUpdate(recipe_.op, std::move(inputs), recipe_.attrs);
}

Sgd::Sgd(const SgdConfig& c) : TableOptimizer(c.learning_rate, {.op = "ApplyGradientDescent"}) {}

Momentum::Momentum(const MomentumConfig& c)
    : TableOptimizer(c.learning_rate,
                     {.op = "ApplyMomentum",
                      .slots = {{"momentum"}},
                      .attrs = {{"momentum", Fraction("Momentum", "momentum", c.momentum)},
                                {"nesterov", c.nesterov}}}) {}

Adagrad::Adagrad(const AdagradConfig& c)
    : TableOptimizer(
          c.learning_rate,
          {.op = "ApplyAdagrad",
           .slots = {{"square_sum", NotNegative("Adagrad", "initial_sum", c.initial_sum)}},
           .attrs = {{"epsilon", NotNegative("Adagrad", "epsilon", c.epsilon)}}}) {}

namespace {

// Without momentum there is no slot for it.
UpdateRecipe RMSPropRecipe(const RMSPropConfig& c) {
  UpdateRecipe recipe{.op = "ApplyRMSProp",
                      .slots = {{"square_mean"}},
                      .attrs = {{"rho", Fraction("RMSProp", "rho", c.rho)},
                                {"epsilon", NotNegative("RMSProp", "epsilon", c.epsilon)}}};
  if (Fraction("RMSProp", "momentum", c.momentum) == 0) return recipe;
  recipe.op = "ApplyRMSPropMomentum";
  recipe.slots.push_back({"momentum"});
  recipe.attrs.emplace_back("momentum", c.momentum);
  return recipe;
}

}  // namespace

RMSProp::RMSProp(const RMSPropConfig& c) : TableOptimizer(c.learning_rate, RMSPropRecipe(c)) {}

Adam::Adam(const AdamConfig& c)
    : TableOptimizer(c.learning_rate,
                     {.op = "ApplyAdam",
                      .slots = {{"m"}, {"v"}},
                      .attrs = {{"beta1", Fraction("Adam", "beta1", c.beta1)},
                                {"beta2", Fraction("Adam", "beta2", c.beta2)},
                                {"epsilon", NotNegative("Adam", "epsilon", c.epsilon)}}}) {}

AdamW::AdamW(const AdamWConfig& c)
    : TableOptimizer(
          c.learning_rate,
          {.op = "ApplyAdamW",
           .slots = {{"m"}, {"v"}},
           .attrs = {{"beta1", Fraction("AdamW", "beta1", c.beta1)},
                     {"beta2", Fraction("AdamW", "beta2", c.beta2)},
                     {"epsilon", NotNegative("AdamW", "epsilon", c.epsilon)},
                     {"weight_decay", NotNegative("AdamW", "weight_decay", c.weight_decay)}}}) {}

Ftrl::Ftrl(const FtrlConfig& c)
    : TableOptimizer(c.learning_rate, {.op = "ApplyFtrl",
                                       .slots = {{"n"}, {"z"}},
                                       .attrs = {{"l1", NotNegative("Ftrl", "l1", c.l1)},
                                                 {"l2", NotNegative("Ftrl", "l2", c.l2)},
                                                 {"beta", NotNegative("Ftrl", "beta", c.beta)}}}) {}

}  // namespace tutti
