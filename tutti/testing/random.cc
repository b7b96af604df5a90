#include "tutti/testing/random.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/testing/elements.h"

namespace tutti::testing {

int64_t Random::Integer(int64_t low, int64_t high) {
  const uint64_t count = uint64_t(high) - uint64_t(low) + 1;
  return int64_t(uint64_t(low) + (count == 0 ? Bits() : Bits() % count));
}

double Random::Uniform(double low, double high) {
  return low + (high - low) * (double(Bits() >> 11) * 0x1p-53);
}

int64_t RandomDim(Random& random, int64_t min, int64_t max) {
  const int64_t kind = random.Integer(0, 9);
  int64_t dim = 1;
  if (kind == 0) {
    dim = 0;
  } else if (kind == 1) {
    dim = 1;
  } else if (kind <= 6) {
    dim = random.Integer(2, 9);
  } else {
    dim = random.Pick<int64_t>({16, 17, 31, 33, 64, 100});
  }
  return std::clamp(dim, min, max);
}

Shape RandomShape(Random& random, const ShapeOptions& options) {
  const int rank = int(random.Integer(options.min_rank, options.max_rank));
  std::vector<int64_t> dims;
  int64_t left = std::max<int64_t>(options.max_elements, 1);
  for (int i = 0; i < rank; ++i) {
    dims.push_back(RandomDim(random, options.min_dim, std::max(left, options.min_dim)));
    left /= std::max<int64_t>(dims.back(), 1);
  }
  random.Shuffle(dims);
  return Shape(dims);
}

Shape RandomBroadcast(Random& random, const Shape& shape) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  for (int64_t& dim : dims) {
    if (random.Integer(0, 2) == 0) dim = 1;
  }
  if (random.Integer(0, 2) == 0) {
    dims.erase(dims.begin(), dims.begin() + random.Integer(0, int64_t(dims.size())));
  }
  return Shape(dims);
}

Tensor RandomTensor(Random& random, DType dtype, const Shape& shape, double low, double high) {
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    SetElement(tensor, i,
               IsFloating(dtype) ? random.Uniform(low, high)
                                 : double(random.Integer(std::llround(low), std::llround(high))));
  }
  return tensor;
}

Tensor RandomAwayFromZero(Random& random, DType dtype, const Shape& shape, double margin,
                          double high) {
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = random.Uniform(margin, high);
    SetElement(tensor, i, random.Coin() ? value : -value);
  }
  return tensor;
}

Tensor RandomDistinct(Random& random, DType dtype, const Shape& shape, double scale) {
  Tensor tensor(dtype, shape);
  const int64_t count = tensor.elements();
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  random.Shuffle(order);
  for (int64_t i = 0; i < count; ++i) {
    SetElement(tensor, i, scale * (double(2 * order[size_t(i)] + 1) / double(count) - 1));
  }
  return tensor;
}

Tensor RandomIndices(Random& random, DType dtype, const Shape& shape, int64_t limit) {
  return RandomTensor(random, dtype, shape, 0, double(limit - 1));
}

Tensor IntegerVector(const std::vector<int64_t>& values, DType dtype) {
  Tensor tensor(dtype, Shape{int64_t(values.size())});
  for (size_t i = 0; i < values.size(); ++i) SetElement(tensor, int64_t(i), double(values[i]));
  return tensor;
}

}  // namespace tutti::testing
