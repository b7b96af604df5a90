#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddRandomSamples(SampleRegistry&) {}

}  // namespace tutti::testing
