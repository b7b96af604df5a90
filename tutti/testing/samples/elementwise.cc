#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddElementwiseSamples(SampleRegistry&) {}

}  // namespace tutti::testing
