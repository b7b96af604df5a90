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

// `low` and `high` bound what the gradient op looks at.
void AddSmooth(SampleRegistry& samples, const std::string& op, double low, double high,
               AttrList attrs = {}) {
  samples.Add({.op = op, .make = [attrs](Random& random, DType real) {
                 return OpCase{{RandomTensor(random, real, RandomShape(random), -6, 6)}, attrs};
               }});
  samples.Add({.op = op + "Grad", .make = [low, high, attrs](Random& random, DType real) {
                 const Shape shape = RandomShape(random);
                 return OpCase{{RandomTensor(random, real, shape),
                                RandomTensor(random, real, shape, low, high)},
                               attrs};
               }});
}

}  // namespace

void AddActivationSamples(SampleRegistry& samples) {
  AddKinked(samples, "Relu", 1);
  AddKinked(samples, "Relu6", 5);  // 0.5 to 5 on both sides: away from 0 and 6
  AddKinked(samples, "LeakyRelu", 1, {{"alpha", 0.3}});
  AddKinked(samples, "Elu", 0.9, {{"alpha", 1.5}});
  AddSmooth(samples, "Sigmoid", 0, 1);
  AddSmooth(samples, "Tanh", -1, 1);
  AddSmooth(samples, "Softplus", -6, 6);
  AddSmooth(samples, "Gelu", -6, 6);
  AddSmooth(samples, "Gelu", -6, 6, {{"approximate", true}});
}

}  // namespace tutti::testing
