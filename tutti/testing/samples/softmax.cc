#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddSoftmaxSamples(SampleRegistry&) {}

}  // namespace tutti::testing
