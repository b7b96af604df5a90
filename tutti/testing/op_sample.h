#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"
#include "tutti/testing/random.h"

// What the sweep over the op registry needs to know of an op: how to make random valid inputs.
namespace tutti::testing {

// One use of an op.
struct OpCase {
  std::vector<Tensor> inputs;
  AttrList attrs = {};
  // The inputs and outputs that gradients are checked for. Empty: all that are floating-point.
  std::vector<int> differentiable = {};
  std::vector<int> differentiable_outputs = {};
};

// How to test an op. An op may have several samples (one for floats, one for integers).
//
//   samples.Add({.op = "Relu", .make = [](Random& random, DType real) {
//     return OpCase{{RandomAwayFromZero(random, real, RandomShape(random))}};
//   }});
struct OpSample {
  std::string op = {};
  // Makes a random case. `real` is the floating-point type to use for the inputs (and attributes)
  // that are real numbers: float32 when CPU kernels are compared, float64 when gradients are. Odd,
  // zero and rank-0 shapes should be among the cases wherever the op allows them. Values stay away
  // from where the op has no derivative, unless gradients are not checked.
  std::function<OpCase(Random& random, DType real)> make = {};
  // How far CPU and reference may differ in float32, relative to the magnitude of each element:
  // its own size, or that of the numbers that it is the sum of (see magnitude.h).
  double tolerance = 1e-5;
  // The least magnitude, for ops that subtract numbers which do not move with their inputs, such as
  // 1 + erf(x): the size of these numbers, or less where rounding them is well within `tolerance`.
  // Say at the sample which.
  double least_magnitude = 0;
  // The same for its gradients: 1 - tanh(x)^2.
  double least_gradient_magnitude = 0;
  // How far a gradient may differ from finite differences in float64, relative to its own size.
  double gradient_tolerance = 1e-6;
  // Set to a reason where finite differences tell nothing (Dropout, StopGradient).
  std::string no_gradient_check = {};
  // A further check of the outputs, run on every kind of kernel: for random ops, for ops whose
  // result must be right and not only equal.
  std::function<absl::Status(const OpCase& op_case, std::span<const Tensor> outputs)> check = {};
};

// The samples by op.
class SampleRegistry {
 public:
  void Add(OpSample sample) { samples_[sample.op].push_back(std::move(sample)); }
  const std::vector<OpSample>& Find(const std::string& op) const;

  // All families' samples.
  static const SampleRegistry& Global();

 private:
  std::map<std::string, std::vector<OpSample>> samples_;
};

// The families; each lies in samples/<family>.cc.
void AddSourceSamples(SampleRegistry& samples);
void AddElementwiseSamples(SampleRegistry& samples);
void AddActivationSamples(SampleRegistry& samples);
void AddShapeSamples(SampleRegistry& samples);
void AddArrangeSamples(SampleRegistry& samples);
void AddGatherSamples(SampleRegistry& samples);
void AddReduceSamples(SampleRegistry& samples);
void AddRandomSamples(SampleRegistry& samples);
void AddMatMulSamples(SampleRegistry& samples);
void AddLinalgSamples(SampleRegistry& samples);
void AddSoftmaxSamples(SampleRegistry& samples);
void AddConvSamples(SampleRegistry& samples);
void AddPoolSamples(SampleRegistry& samples);
void AddNormSamples(SampleRegistry& samples);
void AddControlSamples(SampleRegistry& samples);

// The ops that run the reference kernel on the CPU, by name: reference_on_cpu.cc has the list.
std::span<const std::string_view> OpsThatRunTheReference();

// An op that the sweep cannot test, and the test that does: covered_elsewhere.cc has the list.
struct CoveredOp {
  std::string_view op;
  std::string_view why;   // "stateful", "async", ...
  std::string_view file;  // "tutti/kernels/update/state_test.cc"
  std::string_view test;  // "StateTest.AssignAdd", which must stand in that file
};
std::span<const CoveredOp> OpsCoveredElsewhere();

}  // namespace tutti::testing
