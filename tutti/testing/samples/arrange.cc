#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddArrangeSamples(SampleRegistry&) {}

}  // namespace tutti::testing
