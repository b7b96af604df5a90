#include <string>
#include <vector>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// Where a function of one value is sampled; |x| >= margin when it has a kink at 0.
struct Range {
  double low = -2;
  double high = 2;
  double margin = 0;
};

void AddUnary(SampleRegistry& samples, const std::string& op, Range range) {
  samples.Add({.op = op, .make = [range](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 return OpCase{{range.margin > 0
                                    ? RandomAwayFromZero(random, real, shape, range.margin)
                                    : RandomTensor(random, real, shape, range.low, range.high)}};
               }});
}

// Two shapes that broadcast to a third: equal, a row, a column, a scalar, or any.
std::vector<Shape> BroadcastPair(Random& random) {
  const Shape shape = RandomShape(random);
  const Shape other = random.Integer(0, 3) == 0 ? shape : RandomBroadcast(random, shape);
  return random.Coin() ? std::vector<Shape>{shape, other} : std::vector<Shape>{other, shape};
}

OpCase Pair(Random& random, DType dtype, Range a, Range b) {
  const auto shapes = BroadcastPair(random);
  return {{RandomTensor(random, dtype, shapes[0], a.low, a.high),
           RandomTensor(random, dtype, shapes[1], b.low, b.high)}};
}

void AddBinary(SampleRegistry& samples, const std::string& op, Range a, Range b) {
  samples.Add(
      {.op = op, .make = [a, b](Random& random, DType real) { return Pair(random, real, a, b); }});
}

// The same op on integers of any width.
void AddIntegers(SampleRegistry& samples, const std::string& op, Range a, Range b) {
  samples.Add({.op = op,
               .make =
                   [a, b](Random& random, DType) {
                     const DType dtype = random.Pick(std::vector<DType>{
                         kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64});
                     Range low = a;
                     if (!IsSigned(dtype)) low.low = 0;
                     return Pair(random, dtype, low, b);
                   },
               .no_gradient_check = "integers"});
}

// Values of a and b that are never within `margin` of each other: away from where Maximum and its
// like switch.
OpCase Apart(Random& random, DType dtype) {
  const auto shapes = BroadcastPair(random);
  Tensor a = RandomTensor(random, dtype, shapes[0], -10, 10);
  Tensor b = RandomTensor(random, dtype, shapes[1], -10, 10);
  // a on whole numbers, b on halves.
  for (Tensor* tensor : {&a, &b}) {
    const double shift = tensor == &a ? 0 : 0.5;
    for (int64_t i = 0; i < tensor->elements(); ++i) {
      if (dtype == kFloat64) {
        tensor->data<double>()[i] = double(int64_t(tensor->data<double>()[i])) + shift;
      } else {
        tensor->data<float>()[i] = float(int64_t(tensor->data<float>()[i])) + float(shift);
      }
    }
  }
  return {{a, b}};
}

void AddComparisons(SampleRegistry& samples) {
  for (const char* op : {"Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"}) {
    samples.Add({.op = op,
                 .make =
                     [](Random& random, DType real) {
                       // Few values, so that equal ones are among them.
                       OpCase op_case = Pair(random, kInt8, {-2, 2}, {-2, 2});
                       for (Tensor& input : op_case.inputs) {
                         Tensor values(real, input.shape());
                         for (int64_t i = 0; i < input.elements(); ++i) {
                           const int8_t value = input.data<int8_t>()[i];
                           if (real == kFloat64) values.data<double>()[i] = value;
                           if (real == kFloat32) values.data<float>()[i] = value;
                         }
                         input = values;
                       }
                       return op_case;
                     },
                 .no_gradient_check = "bool results"});
    AddIntegers(samples, op, {-3, 3}, {0, 3});
  }
  for (const char* op : {"LogicalAnd", "LogicalOr"}) {
    samples.Add({.op = op,
                 .make =
                     [](Random& random, DType) {
                       return Pair(random, kBool, {0, 1}, {0, 1});
                     },
                 .no_gradient_check = "bool results"});
  }
  samples.Add({.op = "LogicalNot",
               .make =
                   [](Random& random, DType) {
                     return OpCase{{RandomTensor(random, kBool, RandomShape(random), 0, 1)}};
                   },
               .no_gradient_check = "bool results"});
  samples.Add({.op = "IsFinite",
               .make =
                   [](Random& random, DType real) {
                     Tensor x = RandomTensor(random, real, RandomShape(random));
                     for (int64_t i = 0; i < x.elements(); i += 3) {
                       const double value = i % 2 == 0 ? 1.0 / 0.0 : 0.0 / 0.0;
                       if (real == kFloat64) x.data<double>()[i] = value;
                       if (real == kFloat32) x.data<float>()[i] = float(value);
                     }
                     return OpCase{{x}};
                   },
               .no_gradient_check = "bool results"});
}

void AddOthers(SampleRegistry& samples) {
  samples.Add({.op = "AddN", .make = [](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 OpCase op_case;
                 for (int64_t i = random.Integer(1, 5); i > 0; --i) {
                   op_case.inputs.push_back(RandomTensor(random, real, shape));
                 }
                 return op_case;
               }});
  samples.Add(
      {.op = "Select", .make = [](Random& random, DType real) {
         const Shape shape = RandomShape(random);
         const auto some = [&] { return random.Coin() ? shape : RandomBroadcast(random, shape); };
         return OpCase{{RandomTensor(random, kBool, some(), 0, 1),
                        RandomTensor(random, real, shape), RandomTensor(random, real, some())}};
       }});
  samples.Add({.op = "Cast",
               .make =
                   [](Random& random, DType real) {
                     const DType to = real == kFloat64
                                          ? kFloat64
                                          : random.Pick(std::vector<DType>(std::begin(kAllDTypes),
                                                                           std::end(kAllDTypes)));
                     return OpCase{{RandomTensor(random, real, RandomShape(random), -100, 100)},
                                   {{"dtype", to}}};
                   },
               .tolerance = 0});
  samples.Add({.op = "Clip", .make = [](Random& random, DType real) {
                 // Bounds on eighths, values on odd sixteenths: never nearer than the step of
                 // finite differences.
                 Tensor x = RandomTensor(random, real, RandomShape(random), -20, 20);
                 for (int64_t i = 0; i < x.elements(); ++i) {
                   if (real == kFloat64) {
                     double& value = x.data<double>()[i];
                     value = (double(int64_t(value)) * 2 + 1) / 16;
                   } else {
                     float& value = x.data<float>()[i];
                     value = (float(int64_t(value)) * 2 + 1) / 16;
                   }
                 }
                 return OpCase{{x}, {{"high", 1.0}, {"low", -0.5}}};
               }});
}

}  // namespace

void AddElementwiseSamples(SampleRegistry& samples) {
  const Range any{-2, 2};
  const Range positive{0.3, 3};
  AddBinary(samples, "Add", any, any);
  AddBinary(samples, "Sub", any, any);
  AddBinary(samples, "Mul", any, any);
  AddBinary(samples, "Div", any, positive);
  AddBinary(samples, "SquaredDifference", any, any);
  AddBinary(samples, "Pow", positive, any);
  for (const char* op : {"Maximum", "Minimum"}) {
    samples.Add({.op = op, .make = Apart});
    AddIntegers(samples, op, {-9, 9}, {0, 9});
  }
  // Quotients a / b lie strictly between whole numbers.
  for (const char* op : {"FloorDiv", "Mod"}) {
    samples.Add({.op = op, .make = [](Random& random, DType real) {
                   const auto shapes = BroadcastPair(random);
                   return OpCase{{RandomTensor(random, real, shapes[0], 3.1, 3.9),
                                  RandomTensor(random, real, shapes[1], 0.99, 1.01)}};
                 }});
    AddIntegers(samples, op, {-100, 100}, {1, 12});
  }
  for (const char* op : {"Add", "Sub", "Mul", "Div", "SquaredDifference"}) {
    AddIntegers(samples, op, {-100, 100}, {1, 100});
  }
  AddIntegers(samples, "Pow", {-5, 5}, {0, 9});

  AddUnary(samples, "Neg", any);
  AddUnary(samples, "Abs", {.margin = 0.1});
  AddUnary(samples, "Sign", {.margin = 0.1});
  AddUnary(samples, "Square", any);
  AddUnary(samples, "Sqrt", positive);
  AddUnary(samples, "Rsqrt", positive);
  AddUnary(samples, "Exp", {-5, 5});
  AddUnary(samples, "Log", positive);
  AddUnary(samples, "Log1p", {-0.7, 3});
  AddUnary(samples, "Sin", {-10, 10});
  AddUnary(samples, "Cos", {-10, 10});
  AddUnary(samples, "Erf", {-4, 4});
  AddUnary(samples, "Floor", {1.1, 1.9});
  AddUnary(samples, "Ceil", {-1.9, -1.1});
  AddUnary(samples, "Round", {1.6, 2.4});
  AddComparisons(samples);
  AddOthers(samples);
}

}  // namespace tutti::testing
