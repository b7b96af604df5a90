#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddConvSamples(SampleRegistry&) {}

}  // namespace tutti::testing
