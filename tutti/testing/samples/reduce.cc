#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddReduceSamples(SampleRegistry&) {}

}  // namespace tutti::testing
