#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// Matrices whose diagonal outweighs the rest of each row: far from singular, and positive definite.
Tensor Dominant(Random& random, DType real, const Shape& batch, int64_t n) {
  const Shape shape = batch.WithInserted(batch.rank(), n).WithInserted(batch.rank() + 1, n);
  const double share = n > 0 ? 1.0 / double(n) : 1;
  Tensor result = RandomTensor(random, real, shape, -share, share);
  const int64_t count = result.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (i / n % n != i % n) continue;
    const double diagonal = random.Uniform(1.2, 2);
    if (real == kFloat64) {
      result.data<double>()[i] = diagonal;
    } else {
      result.data<float>()[i] = float(diagonal);
    }
  }
  return result;
}

Shape Batch(Random& random) { return RandomShape(random, {.max_rank = 2, .max_elements = 6}); }

}  // namespace

void AddLinalgSamples(SampleRegistry& samples) {
  samples.Add({.op = "MatrixInverse", .make = [](Random& random, DType real) {
                 const Shape batch = Batch(random);
                 return OpCase{{Dominant(random, real, batch, RandomDim(random, 0, 17))},
                               {{"transpose", random.Coin()}}};
               }});
  samples.Add({.op = "MatrixDeterminant", .make = [](Random& random, DType real) {
                 const Shape batch = Batch(random);
                 return OpCase{{Dominant(random, real, batch, RandomDim(random, 0, 9))}};
               }});
  samples.Add({.op = "Cholesky", .make = [](Random& random, DType real) {
                 const Shape batch = Batch(random);
                 return OpCase{{Dominant(random, real, batch, RandomDim(random, 0, 17))}};
               }});
  samples.Add({.op = "MatrixSolve", .make = [](Random& random, DType real) {
                 const Shape batch = Batch(random);
                 const int64_t n = RandomDim(random, 0, 17);
                 const Shape right = batch.WithInserted(batch.rank(), n)
                                         .WithInserted(batch.rank() + 1, RandomDim(random, 0, 9));
                 return OpCase{
                     {Dominant(random, real, batch, n), RandomTensor(random, real, right)},
                     {{"transpose_a", random.Coin()}}};
               }});
}

}  // namespace tutti::testing
