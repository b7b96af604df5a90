#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Normalisation: LayerNorm over the last axis of each row, BatchNorm over all axes but the last
// (NHWC images or [n, c]). All inputs have one floating-point dtype. Variances are those of the
// elements at hand (divided by their number).
namespace tutti {

struct NormOptions {
  double epsilon = 1e-5;  // added to the variance; positive
};

// y = (x - mean) * rstd * scale + offset with rstd = 1 / sqrt(variance + epsilon). mean and rstd
// have one value for each row.
struct LayerNormResult {
  Output y;
  Output mean;
  Output rstd;
};

// x [..., c], scale and offset [c].
LayerNormResult LayerNorm(Input x, Input scale, Input offset, const NormOptions& options = {},
                          std::string_view name = "");

// y as above with mean, variance and rstd of the batch, [c].
struct BatchNormResult {
  Output y;
  Output mean;
  Output variance;
  Output rstd;
};

// For training: normalises by the batch. x [..., c], scale and offset [c]. Whoever calls it keeps
// the moving averages (nn does).
BatchNormResult BatchNorm(Input x, Input scale, Input offset, const NormOptions& options = {},
                          std::string_view name = "");

// For use: normalises by a given mean and variance, [c].
Output BatchNormInference(Input x, Input scale, Input offset, Input mean, Input variance,
                          const NormOptions& options = {}, std::string_view name = "");

// The gradients of the normalising ops, made from the gradient that arrives at y.
struct NormGradients {
  Output x;
  Output scale;
  Output offset;
};
NormGradients LayerNormGrad(Input dy, Input x, Input scale, Input mean, Input rstd,
                            std::string_view name = "");
NormGradients BatchNormGrad(Input dy, Input x, Input scale, Input mean, Input rstd,
                            std::string_view name = "");

}  // namespace tutti
