#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddPoolSamples(SampleRegistry&) {}

}  // namespace tutti::testing
