
#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddControlSamples(SampleRegistry& samples) {
  samples.Add({.op = "CheckNumerics", .make = [](Random& random, DType real) {
                 return OpCase{{RandomTensor(random, real, RandomShape(random))}};
               }});
}

}  // namespace tutti::testing
