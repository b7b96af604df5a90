#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddLinalgSamples(SampleRegistry&) {}

}  // namespace tutti::testing
