#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kInputs[] =
    "x = Placeholder() {dtype=float32, shape=[4, 8]}\n"
    "b = Placeholder() {dtype=float32, shape=[8]}\n"
    "w = Placeholder() {dtype=float32, shape=[8, 8]}\n";
constexpr char kFeeds[] = "feed x\nfeed b\nfeed w\n";

std::string Fused(const std::string& lines) {
  RegisterCpuKernels();
  std::string text = TextAfter(FuseElementwise, kInputs + lines + kFeeds);
  for (const std::string part : {kInputs, kFeeds}) {
    if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  }
  return text;
}

TEST(FuseElementwise, AChainWithABroadcastRowAndANumber) {
  EXPECT_EQ(Fused("c = Constant() {value=float32 [] {0.5}}\n"
                  "s = Add(x, b)\n"
                  "r = LeakyRelu(s) {alpha=0.25}\n"
                  "y = Mul(r, c)\n"
                  "fetch y\n"),
            "y = _FusedElementwise(x, b) {outputs=[2], program=[\"Add $0 $1\", "
            "\"LeakyRelu %0 0.25\", \"Mul %1 0.5\"]}\n"
            "fetch y\n");
}

TEST(FuseElementwise, ValuesNeededElsewhereBecomeOutputs) {
  EXPECT_EQ(Fused("s = Exp(x)\n"
                  "t = Neg(s)\n"
                  "m = MatMul(s, w)\n"
                  "fetch t\n"
                  "fetch m\n"),
            "t, = _FusedElementwise(x) {outputs=[0, 1], program=[\"Exp $0\", \"Neg %0\"]}\n"
            "m = MatMul(t, w)\n"
            "fetch t:1\n"
            "fetch m\n");
}

TEST(FuseElementwise, NotAroundANodeOutside) {
  // y takes s directly and through MatMul: one group of both would need its own result.
  const std::string lines =
      "s = Exp(x)\n"
      "m = MatMul(s, w)\n"
      "y = Add(s, m)\n"
      "fetch y\n";
  EXPECT_EQ(Fused(lines), lines);
}

TEST(FuseElementwise, WhatIsConsumedHigherUpIsPulledUp) {
  EXPECT_EQ(Fused("s = Exp(x)\n"
                  "m = MatMul(x, w)\n"
                  "y = Add(s, m)\n"
                  "fetch y\n"),
            "m = MatMul(x, w)\n"
            "y = _FusedElementwise(x, m) {outputs=[1], program=[\"Exp $0\", \"Add %0 $1\"]}\n"
            "fetch y\n");
}

TEST(FuseElementwise, BranchesJoin) {
  EXPECT_EQ(Fused("s = Sigmoid(x)\n"
                  "t = Tanh(x)\n"
                  "y = AddN(s, t, x)\n"
                  "fetch y\n"),
            "y = _FusedElementwise(x) {outputs=[3], program=[\"Sigmoid $0\", \"Tanh $0\", "
            "\"Add %0 %1\", \"Add %2 $0\"]}\n"
            "fetch y\n");
}

TEST(FuseElementwise, NotAcrossShapesDTypesControlEdgesAndTargets) {
  for (const std::string lines :
       {"s = Exp(b)\ny = Add(x, s)\nfetch y\n",                          // another shape
        "i = Cast(x) {dtype=int32}\nj = Neg(i)\ny = Abs(j)\nfetch y\n",  // integers
        "s = Exp(x)\nn = NoOp() ^s\ny = Neg(s)\nfetch y\ntarget n\n",    // n waits for s
        "s = Exp(x)\ny = Neg(s)\nfetch y\ntarget s\n"}) {
    EXPECT_THAT(Fused(lines), Not(HasSubstr("_FusedElementwise"))) << lines;
  }
}

// Fused with y, what is sent would wait for what is received, and that may wait for what is sent.
TEST(FuseElementwise, WhatIsSentDoesNotComeToWaitForARecv) {
  const std::string lines =
      "s = Exp(x)\n"
      "a = Send(s) {key=\"to\"}\n"
      "r = Recv() {dtype=float32, key=\"from\", shape=[4, 8]}\n"
      "y = Mul(s, r)\n"
      "fetch y\n"
      "target a\n";
  EXPECT_THAT(Fused(lines), Not(HasSubstr("_FusedElementwise"))) << Fused(lines);
  EXPECT_THAT(Fused(lines), HasSubstr("Mul(s, r)"));
}

TEST(FuseElementwise, NumbersStayWhereSomebodyElseTakesThem) {
  EXPECT_EQ(Fused("c = Constant() {value=float32 [] {2}}\n"
                  "s = Mul(x, c)\n"
                  "y = Exp(s)\n"
                  "fetch y\n"
                  "fetch c\n"),
            "c = Constant() {value=float32 [] {2}}\n"
            "y = _FusedElementwise(x) {outputs=[1], program=[\"Mul $0 2\", \"Exp %0\"]}\n"
            "fetch y\n"
            "fetch c\n");
}

// Groups have a bounded size, and the work grows with the number of nodes, not with its square.
TEST(FuseElementwise, AChainOfAHundredThousand) {
  Program program;
  Output value = Placeholder(*program.graph, kFloat32, {16});
  program.feeds = {value};
  for (int i = 0; i < 100000; ++i) value = i % 2 == 0 ? Neg(value) : Exp(value);
  program.fetches = {value};
  RegisterCpuKernels();
  Device device("/job:local/task:0/cpu:0", 1);
  const auto fused = FuseElementwise(std::move(program), {.device = &device});
  ASSERT_TRUE(fused.ok()) << MessageOf(fused.status());
  EXPECT_LT(fused->graph->size(), 2000);
}

}  // namespace
}  // namespace tutti
