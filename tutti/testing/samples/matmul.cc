#include "tutti/testing/op_sample.h"

namespace tutti::testing {

void AddMatMulSamples(SampleRegistry&) {}

}  // namespace tutti::testing
