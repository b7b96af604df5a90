#include <cmath>
#include <limits>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// Some axes of a tensor of `rank`, in any order, some counted from the end. Empty: all.
std::vector<int64_t> RandomAxes(Random& random, int rank) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < rank; ++axis) {
    if (random.Coin()) axes.push_back(random.Coin() ? axis : axis - rank);
  }
  random.Shuffle(axes);
  return axes;
}

// Small shapes of many kinds, and now and then one that is large enough to be cut into blocks.
Shape ReducedShape(Random& random, DType real) {
  const bool large = real == kFloat32 && random.Integer(0, 4) == 0;
  if (!large) return RandomShape(random, {.max_rank = 5, .max_elements = 3000});
  switch (random.Integer(0, 3)) {
    case 0:
      return Shape{random.Integer(1, 3), random.Integer(20000, 60000)};
    case 1:
      return Shape{random.Integer(3000, 20000), random.Integer(1, 60)};
    case 2:
      return Shape{random.Integer(1, 9), random.Integer(5000, 9000)};
    default:
      return Shape{random.Integer(1, 5), random.Integer(50, 300), random.Integer(60, 130)};
  }
}

OpCase Reduction(Random& random, const Tensor& x) {
  std::vector<int64_t> axes = RandomAxes(random, x.shape().rank());
  return {{x}, {{"axes", axes}, {"keep_dims", random.Coin()}}};
}

void AddReduction(SampleRegistry& samples, const char* op, bool distinct) {
  samples.Add({.op = op, .make = [distinct](Random& random, DType real) {
                 const Shape shape = ReducedShape(random, real);
                 return Reduction(random, distinct ? RandomDistinct(random, real, shape)
                                                   : RandomTensor(random, real, shape));
               }});
}

void AddIntegerReduction(SampleRegistry& samples, const char* op) {
  samples.Add(
      {.op = op, .make = [](Random& random, DType) {
         const DType dtype = random.Pick(std::vector<DType>{kInt8, kInt32, kInt64, kUInt16});
         return Reduction(random, RandomTensor(random, dtype, RandomShape(random), 0, 100));
       }});
}

OpCase Arg(Random& random, DType real) {
  Shape shape = RandomShape(random, {.min_rank = 1, .max_elements = 3000});
  const int64_t axis = random.Integer(-shape.rank(), shape.rank() - 1);
  if (shape.dim(int(axis)) == 0) shape = shape.WithDim(int(axis), 3);
  const Tensor x = random.Coin() ? RandomDistinct(random, real, shape)
                                 : RandomTensor(random, random.Coin() ? kInt32 : real, shape, 0, 3);
  return {{x}, {{"axis", axis}, {"dtype", random.Coin() ? kInt32 : kInt64}}};
}

OpCase Cumsum(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.min_rank = 1});
  return {{RandomTensor(random, real, shape)},
          {{"axis", random.Integer(-shape.rank(), shape.rank() - 1)},
           {"exclusive", random.Coin()},
           {"reverse", random.Coin()}}};
}

Tensor DimsOf(Random& random, const Shape& shape) {
  const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  return IntegerVector(dims, random.Coin() ? kInt32 : kInt64);
}

// A group of the product has few elements, so that it stays within reach.
OpCase Products(Random& random, DType real, int inputs) {
  const Shape shape = RandomShape(random, {.max_elements = 60});
  OpCase result;
  for (int i = 0; i < inputs; ++i) {
    result.inputs.push_back(RandomAwayFromZero(random, real, shape, 0.5, 1.2));
  }
  // A zero or two: where dividing the product by an element would fail.
  const int64_t elements = result.inputs[0].elements();
  for (int64_t zeros = random.Integer(0, 2); zeros > 0 && elements > 0; --zeros) {
    const int64_t at = random.Integer(0, elements - 1);
    if (real == kFloat64) {
      result.inputs[0].data<double>()[at] = 0;
    } else {
      result.inputs[0].data<float>()[at] = 0;
    }
  }
  result.attrs = {{"axes", RandomAxes(random, shape.rank())}};
  return result;
}

// In half of all cases one element is infinite or NaN.
Tensor PerhapsNotFinite(Random& random, DType real) {
  Tensor x = RandomTensor(random, real, RandomShape(random));
  if (x.elements() == 0 || random.Coin()) return x;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double bad = random.Coin() ? std::nan("") : random.Coin() ? kInfinity : -kInfinity;
  const int64_t at = random.Integer(0, x.elements() - 1);
  if (real == kFloat64) {
    x.data<double>()[at] = bad;
  } else {
    x.data<float>()[at] = float(bad);
  }
  return x;
}

}  // namespace

void AddReduceSamples(SampleRegistry& samples) {
  for (const char* op : {"Sum", "Mean", "LogSumExp"}) AddReduction(samples, op, false);
  for (const char* op : {"Max", "Min"}) AddReduction(samples, op, true);
  for (const char* op : {"Sum", "Prod", "Max", "Min"}) AddIntegerReduction(samples, op);
  samples.Add({.op = "Prod", .make = [](Random& random, DType real) {
                 OpCase result = Products(random, real, 1);
                 result.attrs.emplace_back("keep_dims", random.Coin());
                 return result;
               }});
  samples.Add({.op = "ExclusiveProd",
               .make = [](Random& random, DType real) { return Products(random, real, 1); }});
  samples.Add({.op = "ExclusiveProdGrad",
               .make = [](Random& random, DType real) { return Products(random, real, 2); }});
  for (const char* op : {"All", "Any"}) {
    samples.Add({.op = op, .make = [](Random& random, DType) {
                   return Reduction(random, RandomTensor(random, kBool, RandomShape(random), 0, 1));
                 }});
  }
  samples.Add({.op = "AllFinite", .make = [](Random& random, DType real) {
                 return OpCase{{PerhapsNotFinite(random, real)}};
               }});
  for (const char* op : {"ArgMax", "ArgMin"}) samples.Add({.op = op, .make = Arg});
  samples.Add({.op = "Cumsum", .make = Cumsum});
  samples.Add({.op = "BroadcastTo", .make = [](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 const Shape from = RandomBroadcast(random, shape);
                 return OpCase{{RandomTensor(random, real, from), DimsOf(random, shape)}};
               }});
  samples.Add({.op = "SumToShape", .make = [](Random& random, DType real) {
                 const Shape shape = ReducedShape(random, real);
                 const Shape to = RandomBroadcast(random, shape);
                 return OpCase{{RandomTensor(random, real, shape), DimsOf(random, to)}};
               }});
}

}  // namespace tutti::testing
