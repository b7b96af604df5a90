#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddShapeSamples(SampleRegistry&) {}

}  // namespace tutti::testing
