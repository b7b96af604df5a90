// Ops without a CPU kernel of their own, in order: a Session runs their reference, and the sweep
// has nothing to compare. Those that read a value, move one or draw few numbers need none; the
// others are what a profile should be looked at for first.
#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

constexpr std::string_view kOps[] = {"Assert",        "Assign",
                                     "CheckNumerics", "DynamicPartition",
                                     "DynamicStitch", "DynamicStitchGrad",
                                     "ExclusiveProd", "ExclusiveProdGrad",
                                     "ExpandDims",    "Fill",
                                     "GatherLast",    "GatherLastGrad",
                                     "Identity",      "InTopK",
                                     "IsInitialized", "MaxPoolGradGrad",
                                     "NoOp",          "OnesLike",
                                     "Print",         "Range",
                                     "Rank",          "Reshape",
                                     "Shape",         "Shuffle",
                                     "Size",          "Squeeze",
                                     "StopGradient",  "TileGrad",
                                     "Unique",        "Variable",
                                     "ZerosLike"};

}  // namespace

std::span<const std::string_view> OpsThatRunTheReference() { return kOps; }

}  // namespace tutti::testing
