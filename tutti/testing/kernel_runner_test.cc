#include "tutti/testing/kernel_runner.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti::testing {
namespace {

// Ops that exist in this test program only, with kernels that keep their contract and some that
// break it.
void AddTestOps() {
  [[maybe_unused]] static const bool done = [] {
    RegisterCpuKernels();
    OpRegistry& ops = OpRegistry::Global();
    KernelRegistry& kernels = KernelRegistry::Global();
    const auto same = [](InferContext& c) {
      c.SetOutput(0, c.dtype(0), c.shape(0));
      return absl::OkStatus();
    };
    for (const char* name : {"TestTwice", "TestWritesPast", "TestChangesInput"}) {
      ops.Add({.name = name, .inputs = {"x"}, .infer = same});
    }
    ops.Add({.name = "TestFirst", .inputs = {"x"}, .infer = [](InferContext& c) {
               c.SetOutput(0, c.dtype(0), Shape{kUnknownDim});
               return absl::OkStatus();
             }});
    ops.Add({.name = "TestWrongShape", .inputs = {"x"}, .infer = [](InferContext& c) {
               c.SetOutput(0, c.dtype(0), Shape{kUnknownDim, 7});
               return absl::OkStatus();
             }});
    AddFunctionKernel(kernels, "TestTwice", "ref",
                      [](KernelContext& c) {
                        const float* x = c.input(0).data<float>();
                        float* y = c.output(0).data<float>();
                        for (int64_t i = 0; i < c.input(0).elements(); ++i) y[i] = 2 * x[i];
                        return absl::OkStatus();
                      },
                      {kFloat32}, {{0, 0}});
    AddFunctionKernel(kernels, "TestWritesPast", "ref", [](KernelContext& c) {
      std::memset(c.output(0).raw(), 0, c.output(0).bytes() + 1);
      return absl::OkStatus();
    });
    AddFunctionKernel(kernels, "TestChangesInput", "ref", [](KernelContext& c) {
      std::memset(c.output(0).raw(), 0, c.output(0).bytes());
      const_cast<Tensor&>(c.input(0)).data<float>()[0] += 1;
      return absl::OkStatus();
    });
    for (const char* name : {"TestFirst", "TestWrongShape"}) {
      AddFunctionKernel(kernels, name, "ref", [](KernelContext& c) {
        TUTTI_RETURN_IF_ERROR(c.AllocateOutput(0, Shape{1}));
        c.output(0).data<float>()[0] = c.input(0).data<float>()[0];
        return absl::OkStatus();
      });
    }
    return true;
  }();
}

absl::StatusOr<std::vector<Tensor>> RunOn(KernelRunner& runner, std::string_view op,
                                          const Tensor& x) {
  AddTestOps();
  return runner.RunOp(op, std::span(&x, 1));
}

const Tensor kThree = Tensor::Vector<float>({1, 2, 3});

TEST(KernelRunnerTest, ConstantsAndFeeds) {
  AddTestOps();
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, Shape{kUnknownDim});
  const Output c = Constant(graph, kThree);
  const Output twice = graph.Add({.op = "TestTwice", .inputs = {x}})->output();
  const Output constant_twice = graph.Add({.op = "TestTwice", .inputs = {c}})->output();
  KernelRunner runner(KernelChoice::kReference);
  const auto results =
      runner.Run({{x, Tensor::Vector<float>({5, 7})}}, {twice, constant_twice, c, x});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].BitwiseEquals(Tensor::Vector<float>({10, 14})));
  EXPECT_TRUE((*results)[1].BitwiseEquals(Tensor::Vector<float>({2, 4, 6})));
  EXPECT_TRUE((*results)[2].BitwiseEquals(kThree));
  EXPECT_TRUE((*results)[3].BitwiseEquals(Tensor::Vector<float>({5, 7})));
  // An inner value may be fed; then what lies before it is not needed.
  const auto fed = runner.Run({{twice, kThree}}, {twice});
  ASSERT_TRUE(fed.ok()) << fed.status();
  const auto missing = runner.Run({}, {twice});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KernelRunnerTest, SharesMemoryWhereTheKernelAllowsIt) {
  KernelRunner runner(KernelChoice::kReference);
  runner.set_in_place(true);
  const auto results = RunOn(runner, "TestTwice", kThree);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].BitwiseEquals(Tensor::Vector<float>({2, 4, 6})));
  EXPECT_TRUE(kThree.BitwiseEquals(Tensor::Vector<float>({1, 2, 3})));
}

TEST(KernelRunnerTest, ShapesThatOnlyTheKernelKnows) {
  KernelRunner runner(KernelChoice::kReference);
  const auto results = RunOn(runner, "TestFirst", kThree);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].BitwiseEquals(Tensor::Vector<float>({1})));
}

TEST(KernelRunnerTest, ChoosesExactly) {
  KernelRunner cpu_only(KernelChoice::kCpuOnly);
  EXPECT_EQ(RunOn(cpu_only, "TestTwice", kThree).status().code(), absl::StatusCode::kNotFound);
  KernelRunner cpu(KernelChoice::kCpu);
  EXPECT_TRUE(RunOn(cpu, "TestTwice", kThree).ok());
}

TEST(KernelRunnerTest, ReportsBrokenContracts) {
  KernelRunner runner(KernelChoice::kReference);
  for (const char* op : {"TestWritesPast", "TestChangesInput", "TestWrongShape"}) {
    EXPECT_EQ(RunOn(runner, op, kThree).status().code(), absl::StatusCode::kInternal) << op;
  }
}

}  // namespace
}  // namespace tutti::testing
