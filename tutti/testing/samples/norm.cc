#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// x [..., c] and vectors of c. Rows of few elements have almost no variance now and then, where
// derivatives are too steep for finite differences; a larger epsilon keeps them moderate.
OpCase Normalized(Random& random, DType real, int min_rank, int vectors) {
  const Shape shape =
      RandomShape(random, {.min_rank = min_rank, .max_rank = 4, .max_elements = 3000});
  OpCase result{{RandomTensor(random, real, shape, -2, 3)}};
  for (int i = 0; i < vectors; ++i) {
    result.inputs.push_back(RandomTensor(random, real, Shape{shape.dim(-1)}, 0.3, 2));
  }
  result.attrs = {{"epsilon", 0.1}};
  return result;
}

// dy, x, scale, mean, rstd as they come from the forward op, more or less.
OpCase NormalizedGrad(Random& random, DType real, bool by_row) {
  const Shape shape =
      RandomShape(random, {.min_rank = by_row ? 1 : 2, .max_rank = 4, .max_elements = 2000});
  const Shape channels{shape.dim(-1)};
  const Shape statistics = by_row ? shape.WithoutDim(-1) : channels;
  return {{RandomTensor(random, real, shape), RandomTensor(random, real, shape, -2, 3),
           RandomTensor(random, real, channels, 0.3, 2), RandomTensor(random, real, statistics),
           RandomTensor(random, real, statistics, 0.5, 1.5)}};
}

// Gradients have d - mean(d), with d = dy * scale of up to 2, times rstd of up to 3. In a group of
// one element d is its own mean, so that this is the difference of two roundings of d however d
// moves, beside a result that may be as small as it likes. Three roundings of 6, which float32
// makes, are 1e-6.
constexpr double kLeastGradient = 0.1;

}  // namespace

void AddNormSamples(SampleRegistry& samples) {
  samples.Add({.op = "LayerNorm",
               .make = [](Random& random, DType real) { return Normalized(random, real, 1, 2); },
               .least_gradient_magnitude = kLeastGradient});
  samples.Add({.op = "BatchNorm",
               .make = [](Random& random, DType real) { return Normalized(random, real, 2, 2); },
               .least_gradient_magnitude = kLeastGradient});
  samples.Add({.op = "BatchNormInference",
               .make = [](Random& random, DType real) { return Normalized(random, real, 1, 4); }});
  samples.Add(
      {.op = "LayerNormGrad",
       .make = [](Random& random, DType real) { return NormalizedGrad(random, real, true); },
       .least_magnitude = kLeastGradient});
  samples.Add(
      {.op = "BatchNormGrad",
       .make = [](Random& random, DType real) { return NormalizedGrad(random, real, false); },
       .least_magnitude = kLeastGradient});
}

}  // namespace tutti::testing
