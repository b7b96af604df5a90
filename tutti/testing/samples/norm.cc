#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddNormSamples(SampleRegistry&) {}

}  // namespace tutti::testing
