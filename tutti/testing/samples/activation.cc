#include <string>

#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// x away from the kink at 0, scaled by `scale`.
OpCase Kinked(Random& random, DType real, double scale, AttrList attrs) {
  const Tensor x = RandomAwayFromZero(random, real, RandomShape(random), 0.1 * scale, scale);
  return {{x}, std::move(attrs)};
}

OpCase KinkedGrad(Random& random, DType real, double scale, AttrList attrs) {
  const Shape shape = RandomShape(random);
  return {{RandomTensor(random, real, shape),
           RandomAwayFromZero(random, real, shape, 0.1 * scale, scale)},
          std::move(attrs)};
}

void AddKinked(SampleRegistry& samples, const std::string& op, double scale, AttrList attrs = {}) {
  samples.Add({.op = op, .make = [scale, attrs](Random& random, DType real) {
                 return Kinked(random, real, scale, attrs);
               }});
  samples.Add({.op = op + "Grad", .make = [scale, attrs](Random& random, DType real) {
                 return KinkedGrad(random, real, scale, attrs);
               }});
}

// Where a smooth function and its gradient op are sampled.
struct Smooth {
  double reach = 6;  // x lies in [-reach, reach]
  double low = -6;   // and what the gradient op looks at in [low, high]
  double high = 6;
  double least_magnitude = 0;
  double least_gradient_magnitude = 0;
};

void AddSmooth(SampleRegistry& samples, const std::string& op, const Smooth& range,
               AttrList attrs = {}) {
  samples.Add({.op = op,
               .make =
                   [range, attrs](Random& random, DType real) {
                     return OpCase{{RandomTensor(random, real, RandomShape(random), -range.reach,
                                                 range.reach)},
                                   attrs};
                   },
               .least_magnitude = range.least_magnitude,
               .least_gradient_magnitude = range.least_gradient_magnitude});
  samples.Add({.op = op + "Grad",
               .make =
                   [range, attrs](Random& random, DType real) {
                     const Shape shape = RandomShape(random);
                     return OpCase{{RandomTensor(random, real, shape),
                                    RandomTensor(random, real, shape, range.low, range.high)},
                                   attrs};
                   },
               .least_magnitude = range.least_gradient_magnitude,
               .least_gradient_magnitude = range.least_gradient_magnitude});
}

}  // namespace

void AddActivationSamples(SampleRegistry& samples) {
  AddKinked(samples, "Relu", 1);
  AddKinked(samples, "Relu6", 5);  // 0.5 to 5 on both sides: away from 0 and 6
  AddKinked(samples, "LeakyRelu", 1, {{"alpha", 0.3}});
  AddKinked(samples, "Elu", 0.9, {{"alpha", 1.5}});
  AddSmooth(samples, "Softplus", {});
  // The gradients of Sigmoid and Tanh are y (1 - y) and 1 - y^2, and Gelu is x (1 + erf(x /
  // sqrt(2))) / 2: far from zero these are small differences of numbers near 1. Near it they are
  // not.
  AddSmooth(samples, "Sigmoid", {.low = 0, .high = 1, .least_gradient_magnitude = 0.01});
  AddSmooth(samples, "Tanh", {.low = -1, .high = 1, .least_gradient_magnitude = 1});
  AddSmooth(samples, "Tanh", {.reach = 0.5, .low = -0.5, .high = 0.5});
  for (const bool approximate : {false, true}) {
    const AttrList attrs = {{"approximate", approximate}};
    AddSmooth(samples, "Gelu", {.least_magnitude = 1, .least_gradient_magnitude = 1}, attrs);
    AddSmooth(samples, "Gelu", {.reach = 0.5, .low = -0.5, .high = 0.5}, attrs);
  }
}

}  // namespace tutti::testing
