#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

OpCase AnyTensor(Random& random, DType real) {
  return {{RandomTensor(random, real, RandomShape(random))}};
}

// Another shape of as many elements: neighbours merged, ones inserted, one dimension left open.
std::vector<int64_t> OtherDims(Random& random, const Shape& shape) {
  std::vector<int64_t> dims;
  for (const int64_t dim : shape.dims()) {
    if (!dims.empty() && random.Coin()) {
      dims.back() *= dim;
    } else {
      dims.push_back(dim);
    }
  }
  if (random.Coin()) dims.insert(dims.begin() + random.Integer(0, int64_t(dims.size())), 1);
  if (!dims.empty() && shape.elements() > 0 && random.Coin()) {
    dims[size_t(random.Integer(0, int64_t(dims.size()) - 1))] = -1;
  }
  return dims;
}

OpCase ReshapeCase(Random& random, DType real) {
  const Shape shape = RandomShape(random);
  return {{RandomTensor(random, real, shape),
           IntegerVector(OtherDims(random, shape), random.Pick<DType>({kInt32, kInt64}))}};
}

OpCase SqueezeCase(Random& random, DType real) {
  Shape shape = RandomShape(random, {.max_rank = 3});
  std::vector<int64_t> axes;
  for (int i = int(random.Integer(0, 3)); i > 0; --i) {
    shape = shape.WithInserted(int(random.Integer(0, shape.rank())), 1);
  }
  if (random.Coin()) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape.dim(i) == 1 && random.Coin()) axes.push_back(random.Coin() ? i : i - shape.rank());
    }
  }
  return {{RandomTensor(random, real, shape)}, {{"axes", axes}}};
}

OpCase RangeOfInts(Random& random) {
  const int64_t start = random.Integer(-20, 20);
  const int64_t limit = random.Integer(-20, 20);
  const int64_t delta = random.Coin() ? random.Integer(1, 5) : random.Integer(-5, -1);
  if (random.Coin()) {
    return {{Tensor::Scalar(int32_t(start)), Tensor::Scalar(int32_t(limit)),
             Tensor::Scalar(int32_t(delta))}};
  }
  return {{Tensor::Scalar(start), Tensor::Scalar(limit), Tensor::Scalar(delta)}};
}

absl::Status CheckRange(const OpCase& op_case, std::span<const Tensor> outputs) {
  const auto at = [](const Tensor& t, int64_t i) {
    return t.dtype() == kInt32 ? int64_t{t.values<int32_t>()[size_t(i)]}
                               : t.values<int64_t>()[size_t(i)];
  };
  const int64_t limit = at(op_case.inputs[1], 0);
  const int64_t delta = at(op_case.inputs[2], 0);
  int64_t expected = at(op_case.inputs[0], 0);
  int64_t count = 0;
  for (; delta > 0 ? expected < limit : expected > limit; expected += delta, ++count) {
    if (count >= outputs[0].elements() || at(outputs[0], count) != expected) {
      return Internal("element {} should be {}", count, expected);
    }
  }
  return count == outputs[0].elements() ? absl::OkStatus() : Internal("expected {} values", count);
}

}  // namespace

void AddShapeSamples(SampleRegistry& samples) {
  for (const char* op : {"Identity", "ZerosLike", "OnesLike", "Shape", "Rank", "Size"}) {
    samples.Add({.op = op, .make = AnyTensor});
  }
  samples.Add({.op = "StopGradient",
               .make = AnyTensor,
               .no_gradient_check = "its gradient is zero by definition"});
  samples.Add({.op = "Reshape", .make = ReshapeCase});
  samples.Add({.op = "ExpandDims", .make = [](Random& random, DType real) {
                 OpCase op_case = AnyTensor(random, real);
                 const int rank = op_case.inputs[0].shape().rank();
                 op_case.attrs = {{"axis", random.Integer(-rank - 1, rank)}};
                 return op_case;
               }});
  samples.Add({.op = "Squeeze", .make = SqueezeCase});
  samples.Add({.op = "Fill", .make = [](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
                 return OpCase{{IntegerVector(dims, random.Pick<DType>({kInt32, kInt64})),
                                RandomTensor(random, real, {})}};
               }});
  samples.Add({.op = "Range",
               .make = [](Random& random, DType) { return RangeOfInts(random); },
               .check = CheckRange});
}

}  // namespace tutti::testing
