// The sweep over the op registry in float16 and bfloat16: what an op's definition accepts, its
// kernels must compute. The reference and, where there is one, the CPU kernel are compared with the
// reference in float32 on the same values, rounded in the end. Seeds as in op_sweep_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/elements.h"
#include "tutti/testing/gradient_check.h"
#include "tutti/testing/magnitude.h"
#include "tutti/testing/one_node.h"
#include "tutti/testing/sweep.h"

namespace tutti::testing {
namespace {

struct SixteenBits {
  DType dtype;
  double tolerance;  // two steps of the type
  double smallest;   // below it the steps grow no finer
};
constexpr SixteenBits kTypes[] = {{kFloat16, 0x1p-9, 0x1p-14}, {kBFloat16, 0x1p-6, 0x1p-126}};

// The case with each float32 input rounded to `dtype`, and kept in it or in float32.
OpCase WithInputs(const OpCase& op_case, DType dtype, bool in_float32) {
  OpCase result = op_case;
  for (Tensor& input : result.inputs) {
    if (input.dtype() != kFloat32) continue;
    input = Rounded(input, dtype);
    if (in_float32) input = Rounded(input, kFloat32);
  }
  return result;
}

bool HasFloat32Input(const OpCase& op_case) {
  return std::any_of(op_case.inputs.begin(), op_case.inputs.end(),
                     [](const Tensor& input) { return input.dtype() == kFloat32; });
}

absl::Status Compare(const std::vector<Tensor>& actual, const std::vector<Tensor>& in_float32,
                     const std::vector<Magnitudes>& magnitudes, double tolerance) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor expected = Rounded(in_float32[i], actual[i].dtype());
    const absl::Status status = CompareTensors(actual[i], expected, tolerance, magnitudes[i]);
    if (!status.ok()) return WithPrefix(status, fmt::format("output {}: ", i));
  }
  return absl::OkStatus();
}

// True if the op takes the type; the values are then right. False: its definition refuses it.
absl::StatusOr<bool> RunCase(const OpSample& sample, const SixteenBits& type, uint64_t seed) {
  try {
    Random random(seed);
    const OpCase op_case = sample.make(random, kFloat32);
    if (!HasFloat32Input(op_case)) return false;
    OneNode narrow, wide;
    const OpCase rounded = WithInputs(op_case, type.dtype, false);
    if (!Build(sample.op, rounded, Declared::kExactly, random, narrow).ok()) return false;
    TUTTI_RETURN_IF_ERROR(
        Build(sample.op, WithInputs(op_case, type.dtype, true), Declared::kExactly, random, wide));
    KernelRunner reference(KernelChoice::kReference);
    TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> expected, wide.Run(reference));
    TUTTI_ASSIGN_OR_RETURN(
        auto magnitudes, MagnitudesOf(reference, wide.feeds, wide.outputs, std::span(&wide.node, 1),
                                      expected, random));
    // Kernels compute in float32, and are as far off as the sample allows there.
    const double least = sample.least_magnitude * sample.tolerance / type.tolerance;
    for (Magnitudes& of_output : magnitudes) {
      for (double& magnitude : of_output) magnitude = std::max({magnitude, type.smallest, least});
    }
    const auto by_reference = narrow.Run(reference);
    if (!by_reference.ok()) return WithPrefix(by_reference.status(), "reference: ");
    if (const auto status = Compare(*by_reference, expected, magnitudes, type.tolerance);
        !status.ok()) {
      return WithPrefix(status, "reference: ");
    }
    if (KernelRegistry::Global().FindExact(sample.op, "cpu", KernelDType(*narrow.node)) !=
        nullptr) {
      KernelRunner cpu(KernelChoice::kCpuOnly, 2);
      const auto by_cpu = narrow.Run(cpu);
      if (!by_cpu.ok()) return WithPrefix(by_cpu.status(), "cpu: ");
      if (const auto status = Compare(*by_cpu, expected, magnitudes, type.tolerance);
          !status.ok()) {
        return WithPrefix(status, "cpu: ");
      }
    }
    return true;
  } catch (...) {
    return StatusFromCurrentException();
  }
}

std::vector<std::string> OpsWithSamples() {
  std::vector<std::string> names;
  for (const auto& [name, def] : OpRegistry::Global().all()) {
    if (!SampleRegistry::Global().Find(name).empty()) names.push_back(name);
  }
  return names;
}

class SixteenBitSweep : public ::testing::TestWithParam<std::string> {};

TEST_P(SixteenBitSweep, Op) {
  RegisterCpuKernels();
  const auto& samples = SampleRegistry::Global().Find(GetParam());
  for (size_t s = 0; s < samples.size(); ++s) {
    for (const SixteenBits& type : kTypes) {
      for (int i = 0; i < SweepCount(5, 100); ++i) {
        const uint64_t seed = SweepSeed() + uint64_t(i);
        const auto taken = RunCase(samples[s], type, seed);
        ASSERT_TRUE(taken.ok()) << GetParam() << ", sample " << s << ", " << NameOf(type.dtype)
                                << ", repeat with TUTTI_SEED=" << seed << ": "
                                << MessageOf(taken.status());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SixteenBitSweep, ::testing::ValuesIn(OpsWithSamples()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tutti::testing
