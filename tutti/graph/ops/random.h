#pragma once

#include <optional>
#include <source_location>
#include <string_view>

#include "tutti/graph/input.h"

// RandomUniform, RandomNormal, TruncatedNormal, Shuffle, Dropout.
//
// All numbers come from a counter-based generator (Philox4x32-10): a number is a function of the
// seeds, the step and the position of its element, and of nothing else. So they are the same for
// any number of threads, cores and devices.
namespace tutti {

struct RandomSeed {
  // The seed of the program: same seed, same numbers.
  int64_t seed = 0;
  // Tells the nodes of a program apart. Left out, it is made from the node's name, so two nodes
  // have different numbers; give it where nodes of different names must agree (the same layer on
  // several devices).
  std::optional<int64_t> node_seed = {};
  // An int64 scalar: each value gives other numbers. Left out, the count of the session's runs.
  Output step = {};
};

struct RandomUniformOptions {
  DType dtype = kFloat32;  // floating, int32 or int64
  double lo = 0;           // values are lo <= v < hi
  double hi = 1;
  RandomSeed random = {};
};
// Evenly distributed numbers in a tensor of dimensions `shape` (an integer vector).
Output RandomUniform(Input shape, const RandomUniformOptions& options = {},
                     std::string_view name = "");
Output RandomUniform(Graph& graph, const Shape& shape, const RandomUniformOptions& options = {},
                     std::string_view name = "",
                     std::source_location where = std::source_location::current());

struct RandomNormalOptions {
  DType dtype = kFloat32;  // floating
  double mean = 0;
  double stddev = 1;
  RandomSeed random = {};
};
// Normally distributed numbers.
Output RandomNormal(Input shape, const RandomNormalOptions& options = {},
                    std::string_view name = "");
Output RandomNormal(Graph& graph, const Shape& shape, const RandomNormalOptions& options = {},
                    std::string_view name = "",
                    std::source_location where = std::source_location::current());

// Normally distributed numbers without those more than two stddev from the mean.
Output TruncatedNormal(Input shape, const RandomNormalOptions& options = {},
                       std::string_view name = "");
Output TruncatedNormal(Graph& graph, const Shape& shape, const RandomNormalOptions& options = {},
                       std::string_view name = "",
                       std::source_location where = std::source_location::current());

struct ShuffleOptions {
  bool inverse = false;  // the permutation that undoes a Shuffle with the same seeds and step
  RandomSeed random = {};
};
// x with the rows of its first dimension in random order.
Output Shuffle(Input x, const ShuffleOptions& options = {}, std::string_view name = "");

struct DropoutOptions {
  RandomSeed random = {};
  // An int64 scalar: the index, in the global batch, of the first element of x. With it, whether an
  // element is dropped does not depend on how the batch is divided. Left out: 0.
  Output offset = {};
};
// x with each element zero with probability `rate` (0 <= rate < 1) and divided by 1 - rate else.
Output Dropout(Input x, double rate, const DropoutOptions& options = {},
               std::string_view name = "");

}  // namespace tutti
