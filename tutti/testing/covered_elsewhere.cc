// Ops that random inputs alone cannot test, each with the test that covers it. The sweep fails when
// the named test does not exist.
#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

constexpr CoveredOp kCovered[] = {
    // source: the values a run starts from.
    {"Constant", "has no kernel: its value is an attribute", "tutti/testing/kernel_runner_test.cc",
     "KernelRunnerTest.ConstantsAndFeeds"},
    {"Placeholder", "has no kernel: its value is fed", "tutti/testing/kernel_runner_test.cc",
     "KernelRunnerTest.ConstantsAndFeeds"},
    // state
    // update
    // queue
    // sync
    // control
};

}  // namespace

std::span<const CoveredOp> OpsCoveredElsewhere() { return kCovered; }

}  // namespace tutti::testing
