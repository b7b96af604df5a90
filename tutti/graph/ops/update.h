#pragma once

#include <optional>
#include <string_view>

#include "tutti/graph/input.h"

// The steps that optimizers take: each changes a variable, and the slots that belong to it, by a
// gradient. Variable and slots are what Variable() returned, all of one floating-point type and
// shape. `learning_rate` is a floating-point scalar, so that a schedule can change it from step to
// step; other hyper-parameters are fixed in the options.
//
// `scale` (every options struct has it) is a scalar that the gradient is multiplied with on its
// way: one over the number of samples, a clipping factor. A scale of 0 says that there is nothing
// to apply: variable and slots stay exactly as they are.
//
// Below g is the scaled gradient, w the variable, lr the learning rate. Each function returns the
// variable after the update. In the Sparse functions the gradient is given as `rows` for the row
// numbers `indices` (int32 or int64); rows of the same number are summed first, in order, and only
// rows that are named change, slots included: a row that is left out does not see its momentum
// decay, where the dense update would let it. An index out of range is an error that changes
// nothing.
namespace tutti {

struct GradientDescentOptions {
  std::optional<Input> scale = std::nullopt;
};
// w -= lr * g
Output ApplyGradientDescent(Input variable, Input learning_rate, Input gradient,
                            const GradientDescentOptions& options = {}, std::string_view name = "");
Output ApplyGradientDescentSparse(Input variable, Input learning_rate, Input indices, Input rows,
                                  const GradientDescentOptions& options = {},
                                  std::string_view name = "");

struct MomentumOptions {
  double momentum = 0.9;
  bool nesterov = false;
  std::optional<Input> scale = std::nullopt;
};
// a = momentum * a + g;  w -= lr * a, or lr * (g + momentum * a) with nesterov
Output ApplyMomentum(Input variable, Input accumulator, Input learning_rate, Input gradient,
                     const MomentumOptions& options = {}, std::string_view name = "");
Output ApplyMomentumSparse(Input variable, Input accumulator, Input learning_rate, Input indices,
                           Input rows, const MomentumOptions& options = {},
                           std::string_view name = "");

struct AdagradOptions {
  double epsilon = 1e-10;
  std::optional<Input> scale = std::nullopt;
};
// s += g^2;  w -= lr * g / (sqrt(s) + epsilon)
Output ApplyAdagrad(Input variable, Input square_sum, Input learning_rate, Input gradient,
                    const AdagradOptions& options = {}, std::string_view name = "");
Output ApplyAdagradSparse(Input variable, Input square_sum, Input learning_rate, Input indices,
                          Input rows, const AdagradOptions& options = {},
                          std::string_view name = "");

struct RMSPropOptions {
  double rho = 0.9;
  double epsilon = 1e-8;
  // With a momentum there must be a slot for it.
  double momentum = 0;
  std::optional<Input> momentum_slot = std::nullopt;
  std::optional<Input> scale = std::nullopt;
};
// s = rho * s + (1 - rho) * g^2;  w -= lr * g / (sqrt(s) + epsilon); with a momentum slot b:
// b = momentum * b + g / (sqrt(s) + epsilon);  w -= lr * b
Output ApplyRMSProp(Input variable, Input square_mean, Input learning_rate, Input gradient,
                    const RMSPropOptions& options = {}, std::string_view name = "");
Output ApplyRMSPropSparse(Input variable, Input square_mean, Input learning_rate, Input indices,
                          Input rows, const RMSPropOptions& options = {},
                          std::string_view name = "");

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<Input> scale = std::nullopt;
};
// `step` is an integer scalar: how many updates there have been, this one included, from 1 on.
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
// w -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)
Output ApplyAdam(Input variable, Input m, Input v, Input learning_rate, Input step, Input gradient,
                 const AdamOptions& options = {}, std::string_view name = "");
Output ApplyAdamSparse(Input variable, Input m, Input v, Input learning_rate, Input step,
                       Input indices, Input rows, const AdamOptions& options = {},
                       std::string_view name = "");

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  std::optional<Input> scale = std::nullopt;
};
// w -= lr * weight_decay * w, then Adam: the decay does not pass through m and v.
Output ApplyAdamW(Input variable, Input m, Input v, Input learning_rate, Input step, Input gradient,
                  const AdamWOptions& options = {}, std::string_view name = "");
Output ApplyAdamWSparse(Input variable, Input m, Input v, Input learning_rate, Input step,
                        Input indices, Input rows, const AdamWOptions& options = {},
                        std::string_view name = "");

struct FtrlOptions {
  double l1 = 0;
  double l2 = 0;
  double beta = 1;  // keeps early steps short
  std::optional<Input> scale = std::nullopt;
};
// Follow the regularised leader, per coordinate (McMahan et al. 2013); lr must be positive.
// n' = n + g^2;  z += g - (sqrt(n') - sqrt(n)) / lr * w;  n = n';
// w = 0 where |z| <= l1, else (sign(z) * l1 - z) / ((beta + sqrt(n)) / lr + l2)
// w is a function of n and z: a first value of w other than 0 is forgotten by the first update.
Output ApplyFtrl(Input variable, Input n, Input z, Input learning_rate, Input gradient,
                 const FtrlOptions& options = {}, std::string_view name = "");
Output ApplyFtrlSparse(Input variable, Input n, Input z, Input learning_rate, Input indices,
                       Input rows, const FtrlOptions& options = {}, std::string_view name = "");

}  // namespace tutti
