// The sweep over the op registry: whatever op is registered is tested on random inputs, or named in
// covered_elsewhere.cc with the test that covers it. An op with neither fails.
//
// For every sample of an op and many random cases:
//   - each CPU kernel equals the reference in float32, on one core and on two, and when outputs
//     share memory with inputs;
//   - what the shape function promises is what kernels return, also when dimensions or ranks are
//     unknown while the graph is built;
//   - the gradient by reference kernels equals finite differences in float64;
//   - the gradient by CPU kernels equals the gradient by reference kernels in float32.
//
// Every run has other cases: the seed is random and printed. TUTTI_SEED=n repeats a failure,
// TUTTI_SWEEP=long runs twenty times as many cases.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/gradient_check.h"
#include "tutti/testing/magnitude.h"
#include "tutti/testing/one_node.h"
#include "tutti/testing/op_sample.h"
#include "tutti/testing/sweep.h"

namespace tutti::testing {
namespace {

// Gradients through kernels that only sum and multiply lose a little more than one kernel does.
constexpr double kGradientSlack = 4;

int CaseCount() { return SweepCount(10, 200); }

absl::Status CompareAll(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                        double tolerance, const std::vector<Magnitudes>& magnitudes = {}) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const absl::Status status =
        CompareTensors(actual[i], expected[i], tolerance,
                       magnitudes.empty() ? std::span<const double>() : magnitudes[i]);
    if (!status.ok()) return WithPrefix(status, fmt::format("output {}: ", i));
  }
  return absl::OkStatus();
}

// The outputs by reference kernels, the same however the inputs are declared.
absl::StatusOr<std::vector<Tensor>> CheckReference(const OpSample& sample, const OpCase& op_case,
                                                   Random& random) {
  std::vector<Tensor> expected;
  for (const Declared how : {Declared::kExactly, Declared::kPlaceholders, Declared::kUnknownDims,
                             Declared::kUnknownRanks}) {
    const std::string context = fmt::format("reference, {}: ", NameOf(how));
    OneNode built;
    if (const auto status = Build(sample.op, op_case, how, random, built); !status.ok()) {
      return WithPrefix(status, context);
    }
    KernelRunner runner(KernelChoice::kReference);
    const auto outputs = built.Run(runner);
    if (!outputs.ok()) return WithPrefix(outputs.status(), context);
    if (how == Declared::kExactly) {
      expected = *outputs;
      if (sample.check) {
        if (const auto status = sample.check(op_case, *outputs); !status.ok()) {
          return WithPrefix(status, context);
        }
      }
    } else if (const auto status = CompareAll(*outputs, expected, 0); !status.ok()) {
      return WithPrefix(status, context);
    }
  }
  return expected;
}

absl::Status CheckCpu(const OpSample& sample, const OpCase& op_case,
                      const std::vector<Tensor>& expected, Random& random) {
  OneNode built;
  TUTTI_RETURN_IF_ERROR(Build(sample.op, op_case, Declared::kExactly, random, built));
  if (KernelRegistry::Global().FindExact(sample.op, "cpu", KernelDType(*built.node)) == nullptr) {
    return absl::OkStatus();
  }
  KernelRunner reference(KernelChoice::kReference);
  TUTTI_ASSIGN_OR_RETURN(auto magnitudes,
                         MagnitudesOf(reference, built.feeds, built.outputs,
                                      std::span(&built.node, 1), expected, random));
  for (Magnitudes& of_output : magnitudes) {
    for (double& magnitude : of_output) magnitude = std::max(magnitude, sample.least_magnitude);
  }
  for (const bool in_place : {false, true}) {
    for (const int cores : {1, 2}) {
      KernelRunner runner(KernelChoice::kCpuOnly, cores);
      runner.set_in_place(in_place);
      const std::string context =
          fmt::format("cpu, {} core(s){}: ", cores, in_place ? ", in place" : "");
      const auto outputs = built.Run(runner);
      if (!outputs.ok()) return WithPrefix(outputs.status(), context);
      if (const auto status = CompareAll(*outputs, expected, sample.tolerance, magnitudes);
          !status.ok()) {
        return WithPrefix(status, context);
      }
      if (sample.check) {
        if (const auto status = sample.check(op_case, *outputs); !status.ok()) {
          return WithPrefix(status, context);
        }
      }
    }
  }
  return absl::OkStatus();
}

// The inputs or outputs to differentiate: those given, or all floating ones.
std::vector<Output> Chosen(const std::vector<Output>& all, const std::vector<int>& given) {
  std::vector<Output> chosen;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool in_list = std::find(given.begin(), given.end(), int(i)) != given.end();
    if (given.empty() ? IsFloating(all[i].dtype()) : in_list) chosen.push_back(all[i]);
  }
  return chosen;
}

absl::Status CheckGradients(const OpSample& sample, uint64_t seed) {
  for (const DType real : {kFloat64, kFloat32}) {
    Random random(seed);
    const OpCase op_case = sample.make(random, real);
    OneNode built;
    // Shapes may be unknown when a gradient is built, and it must be right all the same.
    const Declared how = random.Pick<Declared>({Declared::kExactly, Declared::kUnknownDims});
    TUTTI_RETURN_IF_ERROR(Build(sample.op, op_case, how, random, built));
    const std::vector<Output> xs = Chosen(built.inputs, op_case.differentiable);
    const std::vector<Output> ys = Chosen(built.outputs, op_case.differentiable_outputs);
    if (xs.empty() || ys.empty()) return absl::OkStatus();
    const std::string_view declared = NameOf(how);
    if (real == kFloat64) {
      if (!sample.no_gradient_check.empty()) continue;
      const auto status = CheckGradient(ys, xs, built.feeds, random,
                                        {.tolerance = sample.gradient_tolerance,
                                         .least_magnitude = sample.least_gradient_magnitude});
      if (!status.ok()) {
        return WithPrefix(status, fmt::format("gradient, reference, {}: ", declared));
      }
      continue;
    }
    KernelRunner cpu(KernelChoice::kCpu);
    KernelRunner reference(KernelChoice::kReference);
    const auto status =
        CompareGradients(cpu, reference, ys, xs, built.feeds, random,
                         kGradientSlack * sample.tolerance, sample.least_gradient_magnitude);
    if (!status.ok()) return WithPrefix(status, fmt::format("gradient, cpu, {}: ", declared));
  }
  return absl::OkStatus();
}

std::string Describe(const OpCase& op_case) {
  std::string text = "inputs";
  for (const Tensor& input : op_case.inputs) text += " " + input.ToString(4);
  for (const auto& [name, value] : op_case.attrs) {
    text += ", " + name + "=";
    if (const auto* number = std::get_if<int64_t>(&value)) text += fmt::format("{}", *number);
    if (const auto* flag = std::get_if<bool>(&value)) text += *flag ? "true" : "false";
    if (const auto* real = std::get_if<double>(&value)) text += fmt::format("{}", *real);
    if (const auto* string = std::get_if<std::string>(&value)) text += *string;
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      text +=
          Shape::Make(*list) ? Shape(*list).ToString() : fmt::format("{} integers", list->size());
    }
  }
  return text;
}

absl::Status RunCase(const OpDef& def, const OpSample& sample, uint64_t seed) {
  try {
    Random random(seed);
    const OpCase op_case = sample.make(random, kFloat32);
    const auto checked = [&]() -> absl::Status {
      TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> expected,
                             CheckReference(sample, op_case, random));
      TUTTI_RETURN_IF_ERROR(CheckCpu(sample, op_case, expected, random));
      if (def.gradient != Gradient::kDefined) return absl::OkStatus();
      return CheckGradients(sample, seed);
    }();
    return checked.ok() ? checked : WithPrefix(checked, Describe(op_case) + ": ");
  } catch (...) {
    return StatusFromCurrentException();
  }
}

const CoveredOp* FindCovered(std::string_view op) {
  for (const CoveredOp& covered : OpsCoveredElsewhere()) {
    if (covered.op == op) return &covered;
  }
  return nullptr;
}

std::vector<std::string> PublicOps() {
  std::vector<std::string> names;
  for (const auto& [name, def] : OpRegistry::Global().all()) {
    if (!def.internal) names.push_back(name);
  }
  return names;
}

class OpSweep : public ::testing::TestWithParam<std::string> {};

TEST_P(OpSweep, Op) {
  RegisterCpuKernels();
  const std::string op = GetParam();
  const OpDef& def = *OpRegistry::Global().Find(op);
  const auto& samples = SampleRegistry::Global().Find(op);
  if (samples.empty()) {
    if (const CoveredOp* covered = FindCovered(op)) {
      SUCCEED() << op << " is covered by " << covered->test;
      return;
    }
    FAIL() << op
           << " has neither a sample in tutti/testing/samples nor an entry in "
              "tutti/testing/covered_elsewhere.cc";
  }
  for (size_t s = 0; s < samples.size(); ++s) {
    for (int i = 0; i < CaseCount(); ++i) {
      const uint64_t seed = SweepSeed() + uint64_t(i);
      const absl::Status status = RunCase(def, samples[s], seed);
      ASSERT_TRUE(status.ok()) << op << ", sample " << s << ", repeat with TUTTI_SEED=" << seed
                               << ": " << MessageOf(status);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpSweep, ::testing::ValuesIn(PublicOps()),
                         [](const auto& info) { return info.param; });

// An op that gets a CPU kernel, or loses it, changes the list.
TEST(OpSweepList, OpsThatRunTheReferenceOnTheCpuAreListed) {
  RegisterCpuKernels();
  std::vector<std::string> without;
  for (const std::string& op : PublicOps()) {
    if (op.starts_with("Test")) continue;  // of other tests
    const KernelRegistry& registry = KernelRegistry::Global();
    bool has_reference = false, has_own = false;
    for (const DType dtype : {kFloat32, kInt64, kBool}) {
      has_reference = has_reference || registry.FindExact(op, "ref", dtype) != nullptr;
      has_own = has_own || registry.FindExact(op, "cpu", dtype) != nullptr;
    }
    if (has_reference && !has_own) without.push_back(op);
  }
  const auto listed = OpsThatRunTheReference();
  EXPECT_EQ(fmt::format("{}", fmt::join(without, " ")), fmt::format("{}", fmt::join(listed, " ")))
      << "tutti/testing/reference_on_cpu.cc should list what stands first";
}

TEST(OpSweepList, CoveredOpsExistAndSoDoTheirTests) {
  for (const CoveredOp& covered : OpsCoveredElsewhere()) {
    EXPECT_NE(OpRegistry::Global().Find(covered.op), nullptr) << covered.op;
    EXPECT_TRUE(SampleRegistry::Global().Find(std::string(covered.op)).empty())
        << covered.op << " has samples as well";
    std::ifstream file(fmt::format("{}/{}", TUTTI_SOURCE_DIR, covered.file));
    std::stringstream text;
    text << file.rdbuf();
    const size_t dot = covered.test.find('.');
    ASSERT_NE(dot, std::string_view::npos) << covered.test;
    const std::string arguments =
        fmt::format("({}, {})", covered.test.substr(0, dot), covered.test.substr(dot + 1));
    EXPECT_NE(text.str().find(arguments), std::string::npos)
        << covered.file << " has no test " << covered.test << ", which should cover " << covered.op;
  }
}

}  // namespace
}  // namespace tutti::testing
