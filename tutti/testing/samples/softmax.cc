#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

Shape RowsOfClasses(Random& random) {
  return RandomShape(random, {.min_rank = 1, .max_rank = 3, .max_elements = 3000});
}

// Rows of class scores, and a label for each row. There is at least one class.
OpCase Labelled(Random& random, DType real, int rank) {
  Shape shape = RandomShape(random, {.min_rank = rank, .max_rank = rank});
  if (shape.dim(-1) == 0) shape = shape.WithDim(-1, 5);
  const DType index = random.Coin() ? kInt32 : kInt64;
  return {{RandomTensor(random, real, shape, -3, 3),
           RandomIndices(random, index, shape.WithoutDim(-1), shape.dim(-1))}};
}

}  // namespace

void AddSoftmaxSamples(SampleRegistry& samples) {
  // Where one class has nearly all, its logarithm, and every gradient, is a small difference of
  // numbers near 1.
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    samples.Add({.op = op,
                 .make =
                     [](Random& random, DType real) {
                       return OpCase{{RandomTensor(random, real, RowsOfClasses(random), -5, 5)}};
                     },
                 .least_magnitude = op == std::string_view("LogSoftmax") ? 1.0 : 0.0,
                 .least_gradient_magnitude = 1});
  }
  // LogSoftmaxGrad is dy - exp(y) * sum(dy). Near y = 0 exp(y) is 1 however y moves, so that of a
  // row of one class little is left of dy, which is up to 1.
  for (const char* op : {"SoftmaxGrad", "LogSoftmaxGrad"}) {
    const double least = op == std::string_view("LogSoftmaxGrad") ? 0.1 : 0.0;
    samples.Add({.op = op,
                 .make =
                     [](Random& random, DType real) {
                       const Shape shape = RowsOfClasses(random);
                       return OpCase{{RandomTensor(random, real, shape, -1, 0.5),
                                      RandomTensor(random, real, shape)}};
                     },
                 .least_magnitude = least,
                 .least_gradient_magnitude = least});
  }
  samples.Add({.op = "SoftmaxCrossEntropy",
               .make =
                   [](Random& random, DType real) {
                     const Shape shape = RowsOfClasses(random);
                     return OpCase{{RandomTensor(random, real, shape, -5, 5),
                                    RandomTensor(random, real, shape, 0, 1)}};
                   },
               .least_magnitude = 1,
               .least_gradient_magnitude = 1});
  samples.Add({.op = "SparseSoftmaxCrossEntropy",
               .make = [](Random& random,
                          DType real) { return Labelled(random, real, int(random.Integer(1, 3))); },
               .least_magnitude = 1,
               .least_gradient_magnitude = 1});
  samples.Add({.op = "SigmoidCrossEntropy", .make = [](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 return OpCase{{RandomTensor(random, real, shape, -8, 8),
                                RandomTensor(random, real, shape, 0, 1)}};
               }});
  samples.Add({.op = "L2Loss", .make = [](Random& random, DType real) {
                 const bool large = real == kFloat32 && random.Integer(0, 3) == 0;
                 const Shape shape =
                     large ? Shape{random.Integer(30000, 90000)} : RandomShape(random);
                 return OpCase{{RandomTensor(random, real, shape)}};
               }});
  samples.Add({.op = "InTopK", .make = [](Random& random, DType real) {
                 OpCase result = Labelled(random, real, 2);
                 result.attrs = {{"k", random.Integer(0, 6)}};
                 return result;
               }});
}

}  // namespace tutti::testing
