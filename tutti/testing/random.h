#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::testing {

// Random numbers for tests: the same seed gives the same numbers on every machine (the
// distributions of the standard library do not promise that). A plain value.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Bits() { return engine_(); }
  int64_t Integer(int64_t low, int64_t high);  // low <= result <= high
  double Uniform(double low = -1, double high = 1);
  bool Coin() { return Integer(0, 1) == 1; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[size_t(Integer(0, int64_t(from.size()) - 1))];
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[size_t(Integer(0, int64_t(i) - 1))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

struct ShapeOptions {
  int min_rank = 0;
  int max_rank = 4;
  int64_t min_dim = 0;  // 1: no zero-size tensors
  int64_t max_elements = 2000;
};

// A size that is often an awkward one: 1, small, odd (17, 33, 100), now and then 0.
int64_t RandomDim(Random& random, int64_t min = 0, int64_t max = 100);

// Ranks from min_rank to max_rank, dimensions as RandomDim has them, at most max_elements elements.
Shape RandomShape(Random& random, const ShapeOptions& options = {});

// `shape` with some dimensions made 1 and some leading ones left out: what broadcasts to it.
Shape RandomBroadcast(Random& random, const Shape& shape);

// Values between low and high. For integer dtypes both ends are reached.
Tensor RandomTensor(Random& random, DType dtype, const Shape& shape, double low = -1,
                    double high = 1);

// Values with margin <= |x| <= high, of both signs: away from the kink of Relu or Abs.
Tensor RandomAwayFromZero(Random& random, DType dtype, const Shape& shape, double margin = 0.1,
                          double high = 1);

// No two values nearer than 2 * scale / elements to each other, within [-scale, scale], in random
// order: for Max, TopK, sorting.
Tensor RandomDistinct(Random& random, DType dtype, const Shape& shape, double scale = 1);

// 0 .. limit-1, for Gather and its like. REQUIRES: limit > 0 unless the shape has no elements.
Tensor RandomIndices(Random& random, DType dtype, const Shape& shape, int64_t limit);

// A small vector of int32 or int64, for shapes and the like.
Tensor IntegerVector(const std::vector<int64_t>& values, DType dtype = kInt64);

}  // namespace tutti::testing
