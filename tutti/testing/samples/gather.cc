#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddGatherSamples(SampleRegistry&) {}

}  // namespace tutti::testing
