#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddActivationSamples(SampleRegistry&) {}

}  // namespace tutti::testing
