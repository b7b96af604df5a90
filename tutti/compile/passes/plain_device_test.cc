// On a device that has only the plain kernels of the ops that users build, passes leave a program
// alone where they would need another kernel.
#include <gtest/gtest.h>

#include "tutti/compile/pipeline.h"
#include "tutti/compile/program_text.h"
#include "tutti/compile/step_plan.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

constexpr char kName[] = "/job:local/task:0/plain:0";

// The kernels do nothing: none of them runs.
void AddPlainKernels() {
  [[maybe_unused]] static const bool added = [] {
    RegisterCpuKernels();
    for (const char* op : {"MatMul", "BiasAdd", "Relu", "MaxPool", "MaxPoolGrad", "Mul", "Exp",
                           "Neg", "Variable", "ApplyGradientDescent", "AllReduce"}) {
      AddFunctionKernel(KernelRegistry::Global(), op, "plain",
                        [](KernelContext&) { return absl::OkStatus(); });
    }
    return true;
  }();
}

// The program as it is, placed on the plain device.
std::string Placed(std::string text) {
  for (size_t at = text.find(" @"); at != std::string::npos; at = text.find(" @", at + 2)) {
    text.insert(at + 2, kName);
  }
  return text;
}

// What the master's and the worker's passes make of it.
std::string Compiled(const std::string& text) {
  AddPlainKernels();
  Device device(kName, 1), cpu("/job:local/task:0/cpu:0", 1);
  const DeviceInfo devices[] = {device.info()};
  const auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  auto parts = CompileWhole(*program, devices, &cpu, {});
  if (!parts.ok()) return std::string(MessageOf(parts.status()));
  auto optimized = OptimizePart(std::move(parts->front().program), device, {});
  if (!optimized.ok()) return std::string(MessageOf(optimized.status()));
  std::string compiled = ToText(*optimized);
  const auto plan = MakeStepPlan(*std::move(optimized), device);
  return plan.ok() ? compiled : std::string(MessageOf(plan.status()));
}

TEST(PlainDevice, ProductsWithBiasAndActivationStay) {
  const std::string text = Placed(
      "x = Placeholder() {dtype=float32, shape=[2, 3]} @\n"
      "w = Placeholder() {dtype=float32, shape=[3, 4]} @\n"
      "b = Placeholder() {dtype=float32, shape=[4]} @\n"
      "p = MatMul(x, w) @\n"
      "s = BiasAdd(p, b) @\n"
      "y = Relu(s) @\n"
      "feed x\nfeed w\nfeed b\nfetch y\n");
  EXPECT_EQ(Compiled(text), text);
}

TEST(PlainDevice, ElementwiseChainsAndConstantsStay) {
  const std::string text = Placed(
      "x = Placeholder() {dtype=float32, shape=[2, 3]} @\n"
      "c = Constant() {value=float32 [] {2}} @\n"
      "n = Neg(c) @\n"
      "a = Mul(x, x) @\n"
      "e = Exp(a) @\n"
      "y = Mul(e, n) @\n"
      "feed x\nfetch y\n");
  EXPECT_EQ(Compiled(text), text);
}

TEST(PlainDevice, UpdatesStay) {
  const std::string text = Placed(
      "rate = Placeholder() {dtype=float32, shape=[]} @\n"
      "x = Placeholder() {dtype=float32, shape=[8, 4]} @\n"
      "dy = Placeholder() {dtype=float32, shape=[8, 3]} @\n"
      "g = Placeholder() {dtype=float32, shape=[3]} @\n"
      "w = Variable() {dtype=float32, shape=[4, 3]} @\n"
      "v = Variable() {dtype=float32, shape=[3]} @\n"
      "u = Variable() {dtype=float32, shape=[3]} @\n"
      "dw = MatMul(x, dy) {transpose_a=true} @\n"
      "uw = ApplyGradientDescent(w, rate, dw) @\n"
      "uv = ApplyGradientDescent(v, rate, g) @\n"
      "uu = ApplyGradientDescent(u, rate, g) @\n"
      "feed rate\nfeed x\nfeed dy\nfeed g\ntarget uw\ntarget uv\ntarget uu\n");
  EXPECT_EQ(Compiled(text), text);
}

TEST(PlainDevice, PoolingsAndBucketsStay) {
  const std::string attrs = "{padding=\"VALID\", strides=[2, 2], window=[2, 2]} @\n";
  const std::string text = Placed(
      "x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]} @\n"
      "dy = Placeholder() {dtype=float32, shape=[2, 2, 2, 8]} @\n"
      "p = MaxPool(x) " +
      attrs + "q = MaxPoolGrad(x, p, dy) " + attrs +
      "n = Neg(q) @\n"
      "s = AllReduce(n) {algorithm=\"\", group=\"\", key=\"\", wire=\"as-is\"} @\n"
      "y = Neg(s) @\n"
      "feed x\nfeed dy\nfetch y\n");
  EXPECT_EQ(Compiled(text), text);
}

}  // namespace
}  // namespace tutti
