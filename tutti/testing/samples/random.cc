#include <algorithm>
#include <cmath>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// The attributes of all random ops, and a step to go with them: then a case has the same numbers
// however often it runs.
AttrList Seeds(Random& random) {
  return {{"node_seed", random.Integer(0, 1 << 30)}, {"seed", random.Integer(-100, 100)}};
}

OpCase ShapeAndStep(Random& random, DType real) {
  const Shape shape = RandomShape(random, {.max_elements = 5000});
  const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  OpCase op_case{{IntegerVector(dims, random.Pick<DType>({kInt32, kInt64})),
                  Tensor::Scalar(random.Integer(0, 1000))},
                 Seeds(random)};
  SetAttr(op_case.attrs, "dtype", real);
  return op_case;
}

// All elements lie in [low, high].
absl::Status CheckWithin(const Tensor& values, double low, double high) {
  if (values.dtype() != kFloat32) return absl::OkStatus();
  for (const float value : values.values<float>()) {
    if (!(value >= low && value <= high))
      return Internal("{} is not in {} .. {}", value, low, high);
  }
  return absl::OkStatus();
}

double Attr(const OpCase& op_case, std::string_view name) {
  return std::get<double>(*FindAttr(op_case.attrs, name));
}

OpCase UniformCase(Random& random, DType real) {
  OpCase op_case = ShapeAndStep(random, real);
  const double lo = random.Integer(-5, 5);
  SetAttr(op_case.attrs, "lo", lo);
  SetAttr(op_case.attrs, "hi", lo + double(random.Integer(1, 9)));
  return op_case;
}

OpCase UniformIntsCase(Random& random, DType) {
  return UniformCase(random, random.Pick<DType>({kInt32, kInt64}));
}

OpCase NormalCase(Random& random, DType real) {
  OpCase op_case = ShapeAndStep(random, real);
  SetAttr(op_case.attrs, "mean", random.Uniform(-3, 3));
  SetAttr(op_case.attrs, "stddev", random.Uniform(0, 3));
  return op_case;
}

OpCase ShuffleCase(Random& random, DType real) {
  OpCase op_case{{RandomTensor(random, real, RandomShape(random, {.min_rank = 1})),
                  Tensor::Scalar(random.Integer(0, 1000))},
                 Seeds(random)};
  SetAttr(op_case.attrs, "inverse", random.Coin());
  return op_case;
}

absl::Status CheckSameElements(const OpCase& op_case, std::span<const Tensor> outputs) {
  if (outputs[0].dtype() != kFloat32) return absl::OkStatus();
  std::vector<float> before(op_case.inputs[0].values<float>().begin(),
                            op_case.inputs[0].values<float>().end());
  std::vector<float> after(outputs[0].values<float>().begin(), outputs[0].values<float>().end());
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  return before == after ? absl::OkStatus() : Internal("the elements are not the same");
}

OpCase DropoutCase(Random& random, DType real) {
  OpCase op_case{{RandomTensor(random, real, RandomShape(random, {.max_elements = 5000}))},
                 Seeds(random)};
  const bool has_offset = random.Coin();
  op_case.inputs.push_back(Tensor::Scalar(random.Integer(0, 1000)));
  if (has_offset) op_case.inputs.push_back(Tensor::Scalar(random.Integer(0, 10000)));
  SetAttr(op_case.attrs, "rate", random.Pick<double>({0, 0.1, 0.5, 0.9}));
  SetAttr(op_case.attrs, "has_offset", has_offset);
  return op_case;
}

// Each element is zero or scaled.
absl::Status CheckDropped(const OpCase& op_case, std::span<const Tensor> outputs) {
  if (outputs[0].dtype() != kFloat32) return absl::OkStatus();
  const auto x = op_case.inputs[0].values<float>();
  const auto y = outputs[0].values<float>();
  const double scale = 1 / (1 - Attr(op_case, "rate"));
  for (size_t i = 0; i < x.size(); ++i) {
    if (y[i] != 0 && std::abs(y[i] - x[i] * scale) > 1e-5) {
      return Internal("y[{}] is {} for x of {}", i, y[i], x[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddRandomSamples(SampleRegistry& samples) {
  // Their numbers are shifted by attributes, to within a few units.
  samples.Add({.op = "RandomUniform",
               .make = UniformCase,
               .least_magnitude = 1,
               .check = [](const OpCase& op_case, std::span<const Tensor> outputs) {
                 const double hi = std::nextafter(float(Attr(op_case, "hi")), -1e9f);
                 return CheckWithin(outputs[0], Attr(op_case, "lo"), hi);
               }});
  samples.Add({.op = "RandomUniform", .make = UniformIntsCase});
  samples.Add({.op = "RandomNormal", .make = NormalCase, .least_magnitude = 1});
  samples.Add({.op = "TruncatedNormal",
               .make = NormalCase,
               .least_magnitude = 1,
               .check = [](const OpCase& op_case, std::span<const Tensor> outputs) {
                 const double reach = 2.00001 * Attr(op_case, "stddev") + 1e-6;
                 const double mean = Attr(op_case, "mean");
                 return CheckWithin(outputs[0], mean - reach, mean + reach);
               }});
  samples.Add({.op = "Shuffle", .make = ShuffleCase, .check = CheckSameElements});
  samples.Add({.op = "Dropout", .make = DropoutCase, .check = CheckDropped});
}

}  // namespace tutti::testing
