#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddControlSamples(SampleRegistry&) {}

}  // namespace tutti::testing
