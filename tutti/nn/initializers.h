#pragma once

#include <functional>

#include "tutti/graph/ops/state.h"

// First values of variables: Variable(graph, GlorotUniform({784, 100}), "W"). What is random
// follows from the graph's seed (SetSeed) and the variable's name alone: the same program
// gives the same values on every machine, whatever the threads and whenever the session
// initialises.
namespace tutti {

Initializer Zeros(const Shape& shape, DType dtype = kFloat32);
Initializer Ones(const Shape& shape, DType dtype = kFloat32);
// `value` everywhere, converted to `dtype`.
Initializer Full(const Shape& shape, double value, DType dtype = kFloat32);
// The given tensor.
Initializer Value(Tensor value);

// Uniformly distributed in [lo, hi).
Initializer RandomUniform(const Shape& shape, double lo, double hi, DType dtype = kFloat32);
Initializer RandomNormal(const Shape& shape, double mean, double stddev, DType dtype = kFloat32);
// Normally distributed, without values more than two standard deviations from the mean.
Initializer TruncatedNormal(const Shape& shape, double mean, double stddev, DType dtype = kFloat32);

// The last dimension counts outputs, the one before it inputs, those in front (a filter's height
// and width) multiply both. GlorotUniform keeps the variance of values and gradients through a
// linear layer: even in +-sqrt(6 / (inputs + outputs)). HeNormal keeps that of values through a
// layer with Relu: truncated normal of variance 2 / inputs.
Initializer GlorotUniform(const Shape& shape, DType dtype = kFloat32);
Initializer HeNormal(const Shape& shape, DType dtype = kFloat32);

// An initialiser for a layer, which determines the shape itself:
//   nn::Dense(x, 10, {.weights = HeNormal});
//   nn::Dense(x, 10, {.weights = [](const Shape& s, DType d) { return RandomNormal(s, 0, 1, d);
//   }});
using InitializerOf = std::function<Initializer(const Shape& shape, DType dtype)>;

}  // namespace tutti
