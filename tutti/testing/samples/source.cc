#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddSourceSamples(SampleRegistry&) {}

}  // namespace tutti::testing
